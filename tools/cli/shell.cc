#include "tools/cli/shell.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tools/cli/line.h"
#include "tools/cli/line_reader.h"
#include "tools/terminal/interrupt.h"

namespace osprey {
namespace {

bool IsEnd(const std::vector<std::string>& words) {
  return words.size() == 1 &&
         (absl::EqualsIgnoreCase(words[0], "exit") || absl::EqualsIgnoreCase(words[0], "quit"));
}

}  // namespace

ExitStatus RunOnTerminal(Shell shell) {
  const CatchInterrupts catching;
  LineEditor editor(HistoryFile());
  if (!editor.history_status().ok()) shell.out.Note(editor.history_status().message());
  while (!Terminated()) {
    ForgetInterrupt();
    std::string line;
    const LineEditor::Read read = editor.ReadLine(shell.prompt(), line);
    if (read == LineEditor::Read::kEnd) break;
    if (read == LineEditor::Read::kInterrupted || IsNoCommand(line)) continue;
    const absl::StatusOr<std::vector<std::string>> words = SplitLine(line);
    if (!words.ok()) {
      shell.out.Error("", words.status(), "");
    } else if (IsEnd(*words)) {
      break;
    } else {
      shell.run(*words);
    }
    shell.out.Flush();
  }
  return ExitStatus::kDone;
}

ExitStatus RunLines(Shell shell, std::istream& in) {
  ExitStatus worst = ExitStatus::kDone;
  uint64_t number = 0;
  std::string line;
  while (std::getline(in, line)) {
    ++number;
    if (IsNoCommand(line)) continue;
    const absl::StatusOr<std::vector<std::string>> words = SplitLine(line);
    ExitStatus status = ExitStatus::kUsage;
    if (!words.ok()) {
      shell.out.Error(absl::StrCat("line ", number), words.status(), "");
    } else if (IsEnd(*words)) {
      break;
    } else {
      status = shell.run(*words);
    }
    worst = std::max(worst, status);
    if (status == ExitStatus::kCannotConnect) {
      shell.out.Note(absl::StrCat("line ", number, ": the commands end here"));
      break;
    }
    if (!shell.out.Flush()) return ExitStatus::kFailed;
  }
  return worst;
}

}  // namespace osprey
