#include "tools/loadgen/environment.h"

#include <elf.h>
#include <link.h>
#include <sys/utsname.h>

#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/program/build_commit.h"

namespace osprey::loadgen {
namespace {

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "model name"))
      return std::string(absl::StripAsciiWhitespace(line.substr(line.find(':') + 1)));
  }
  return "unknown";
}

// Finds the linker's note in the program: equal programs have equal notes.
int FindBuildId(dl_phdr_info* info, size_t, void* out) {
  constexpr size_t kAlign = 4;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const char* at = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
    const char* end = at + segment.p_memsz;
    while (static_cast<size_t>(end - at) >= sizeof(ElfW(Nhdr))) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof(note));
      const size_t name = (note.n_namesz + kAlign - 1) / kAlign * kAlign;
      const size_t description = (note.n_descsz + kAlign - 1) / kAlign * kAlign;
      at += sizeof(note);
      if (static_cast<size_t>(end - at) < name + description) break;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(at, "GNU", 4) == 0) {
        *static_cast<std::string*>(out) =
            absl::BytesToHexString(absl::string_view(at + name, note.n_descsz));
        return 1;
      }
      at += name + description;
    }
  }
  return 1;  // the program comes first; libraries do not matter
}

}  // namespace

Facts DescribeMachine() {
  utsname names;
  const bool named = uname(&names) == 0;
  std::string build_id;
  dl_iterate_phdr(FindBuildId, &build_id);
  Facts facts = {{"host", named ? names.nodename : "unknown"},
                 {"cpu", CpuModel()},
                 {"cpus", absl::StrCat(std::thread::hardware_concurrency())},
                 {"kernel", named ? absl::StrCat(names.sysname, " ", names.release) : "unknown"},
                 {"compiler", __VERSION__}};
  if (!build_id.empty()) facts.emplace_back("build_id", build_id);
  if (!BuildCommit().empty()) facts.emplace_back("commit", std::string(BuildCommit()));
  return facts;
}

Facts FactsOf(absl::string_view words) {
  Facts facts;
  for (const absl::string_view word : absl::StrSplit(words, ' ', absl::SkipWhitespace())) {
    const std::pair<std::string, std::string> fact = absl::StrSplit(word, absl::MaxSplits('=', 1));
    if (absl::StrContains(word, '=')) facts.push_back(fact);
  }
  return facts;
}

}  // namespace osprey::loadgen
