// The part of a test's rounds that runs.

#ifndef OSPREY_TESTS_SUPPORT_VOLUME_H_
#define OSPREY_TESTS_SUPPORT_VOLUME_H_

#include "absl/base/config.h"

namespace osprey {

// Under the address sanitizer a test takes several times as long, and a part of the rounds suffices
// to find errors. The build that ships runs all of them.
#if defined(ABSL_HAVE_ADDRESS_SANITIZER)
inline constexpr int kVolumeParts = 4;
#else
inline constexpr int kVolumeParts = 1;
#endif

// Of the tests that take longest.
inline constexpr int kLongVolumeParts = kVolumeParts == 1 ? 1 : 10;

// Whether tests look for the seeds that find a mistake made on purpose. Once is enough.
inline constexpr bool kSearchesMistakes = kVolumeParts == 1;

}  // namespace osprey

#endif  // OSPREY_TESTS_SUPPORT_VOLUME_H_
