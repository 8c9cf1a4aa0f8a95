#!/usr/bin/env python3
"""Prints a C++ header with the contents of files: kPageHtml of page.html, for instance. Usage: embed_files.py FILE…"""

import pathlib
import sys

DELIMITER = "embedded"


def name_of(path):
    return "k" + "".join(part.capitalize() for part in path.name.replace(".", "_").split("_"))


def main(arguments):
    guard = "OSPREY_SERVER_MONITORING_PAGE_STATUS_FILES_H_"
    print(f"#ifndef {guard}\n#define {guard}\n")
    print('#include "absl/strings/string_view.h"\n\nnamespace osprey::server {\n')
    for path in map(pathlib.Path, arguments):
        text = path.read_text(encoding="utf-8")
        if f"){DELIMITER}\"" in text or "\0" in text:
            sys.exit(f"{path} cannot be a raw string: it has its delimiter, or a zero byte")
        print(f'inline constexpr absl::string_view {name_of(path)} = R"{DELIMITER}({text}){DELIMITER}";\n')
    print(f"}}  // namespace osprey::server\n\n#endif  // {guard}")


if __name__ == "__main__":
    main(sys.argv[1:])
