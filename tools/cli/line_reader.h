// Lines typed on a terminal: editing, history and completion by libedit, whatever the terminal is.
//
// History is a file of lines, oldest first, that several shells may append to. It is its owner's
// alone (mode 0600).
//
// Thread rule: one thread, one LineEditor at a time.

#ifndef OSPREY_TOOLS_CLI_LINE_READER_H_
#define OSPREY_TOOLS_CLI_LINE_READER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"

namespace osprey {

class LineEditor {
 public:
  // Of the history: what is offered, and what is kept.
  static constexpr int kHistoryLinesMax = 1000;

  enum class Read {
    kLine,
    kInterrupted,  // Ctrl-C: what was typed is dropped
    kEnd,          // Ctrl-D on an empty line, or the terminal is gone
  };

  // Reads from standard input, echoes to standard output. `history_file` may be empty: none is
  // kept. REQUIRES: both are terminals; a CatchInterrupts (terminal/interrupt.h) is alive.
  explicit LineEditor(std::string history_file);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Not OK: why the history cannot be kept; all else works.
  const absl::Status& history_status() const;

  // The line without its end, in `line`; it goes into the history.
  Read ReadLine(const std::string& prompt, std::string& line);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// OSPREY_HISTORY, or else ~/.osprey_history; "": none.
std::string HistoryFile();

}  // namespace osprey

#endif  // OSPREY_TOOLS_CLI_LINE_READER_H_
