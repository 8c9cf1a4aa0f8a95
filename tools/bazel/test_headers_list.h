// As library_headers_list.h, for tests.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
