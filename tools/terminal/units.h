// Numbers in human-readable form.

#ifndef OSPREY_TOOLS_TERMINAL_UNITS_H_
#define OSPREY_TOOLS_TERMINAL_UNITS_H_

#include <string>

namespace osprey {

// At most 6 characters: "987", "12.3k", "1.20M".
std::string ShortNumber(double number);
// "987B", "12.3KiB", "1.20GiB".
std::string ShortBytes(double bytes);
// "7 s", "3:05", "2:10:00".
std::string ShortTime(double seconds);

}  // namespace osprey

#endif  // OSPREY_TOOLS_TERMINAL_UNITS_H_
