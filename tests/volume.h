// How much of a test's volume is worth its time.

#ifndef OSPREY_TESTS_VOLUME_H_
#define OSPREY_TESTS_VOLUME_H_

#include "absl/base/config.h"

namespace osprey {

// Under the address sanitizer a test takes several times as long, and what it can see there it sees
// in a part of the rounds. All of them are run by the build that ships.
#if defined(ABSL_HAVE_ADDRESS_SANITIZER)
inline constexpr int kVolumeParts = 4;
#else
inline constexpr int kVolumeParts = 1;
#endif

}  // namespace osprey

#endif  // OSPREY_TESTS_VOLUME_H_
