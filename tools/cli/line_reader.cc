#include "tools/cli/line_reader.h"

#include <fcntl.h>
#include <histedit.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "rdma/unique_fd.h"
#include "server/program/printable.h"
#include "tools/cli/line.h"
#include "tools/common/own_file.h"
#include "tools/terminal/interrupt.h"

namespace osprey {
namespace {

// A longer line of a history file is none of ours.
constexpr size_t kHistoryLineBytesMax = 64 << 10;

// What is read of a history file.
constexpr size_t kHistoryBytesMax = 2 * LineEditor::kHistoryLinesMax * kHistoryLineBytesMax;

absl::Status HistoryError(const absl::Status& why) {
  return absl::UnknownError(
      absl::StrCat("history file ", why.message(), "; OSPREY_HISTORY names another"));
}

}  // namespace

class LineEditor::Impl {
 public:
  explicit Impl(std::string history_file);
  ~Impl();
  const absl::Status& history_status() const { return history_status_; }
  Read ReadLine(const std::string& prompt, std::string& line);

 private:
  static Impl& Of(EditLine* editor);
  static char* Prompt(EditLine* editor) { return Of(editor).prompt_.data(); }
  static int ReadCharacter(EditLine* editor, wchar_t* character);
  static unsigned char Complete(EditLine* editor, wint_t character);

  absl::Status LoadHistory();
  absl::Status OpenHistory();
  absl::Status Rewrite(const std::deque<std::string>& lines);
  void Remember(const std::string& line);

  const std::string history_file_;
  absl::Status history_status_;
  rdma::UniqueFd history_fd_;
  std::string last_;
  std::string prompt_;
  bool interrupted_ = false;
  History* history_ = nullptr;
  EditLine* editor_ = nullptr;
};

LineEditor::Impl::Impl(std::string history_file) : history_file_(std::move(history_file)) {
  // Keys may be any UTF-8 in whatever locale.
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) std::setlocale(LC_CTYPE, "");
  history_ = history_init();
  HistEvent event;
  history(history_, &event, H_SETSIZE, kHistoryLinesMax);
  history(history_, &event, H_SETUNIQUE, 1);
  editor_ = el_init("kvcli", stdin, stdout, stderr);
  el_set(editor_, EL_CLIENTDATA, this);
  el_set(editor_, EL_PROMPT, Prompt);
  el_set(editor_, EL_EDITOR, "emacs");
  el_set(editor_, EL_SIGNAL, 0);
  el_set(editor_, EL_HIST, history, history_);
  el_set(editor_, EL_GETCFN, ReadCharacter);
  // (el_set would copy the two texts and never free them.)
  el_wset(editor_, EL_ADDFN, L"kvcli-complete", L"completes a command, flag or file", Complete);
  el_set(editor_, EL_BIND, "^I", "kvcli-complete", nullptr);
  el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  if (!history_file_.empty()) history_status_ = LoadHistory();
}

LineEditor::Impl::~Impl() {
  el_end(editor_);
  history_end(history_);
}

LineEditor::Impl& LineEditor::Impl::Of(EditLine* editor) {
  void* impl = nullptr;
  el_get(editor, EL_CLIENTDATA, &impl);
  return *static_cast<Impl*>(impl);
}

// libedit's own goes on reading after a signal; this one lets Ctrl-C end the line.
int LineEditor::Impl::ReadCharacter(EditLine* editor, wchar_t* character) {
  std::mbstate_t state = {};
  while (true) {
    if (!AwaitReadable(STDIN_FILENO)) {
      Of(editor).interrupted_ = true;
      return -1;
    }
    char byte = 0;
    const ssize_t count = read(STDIN_FILENO, &byte, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return static_cast<int>(count);
    // A Ctrl-D that was typed while a command ran is one no more: the terminal took it for the end
    // of a line without a byte, and left this.
    if (byte == '\0') byte = 'D' & 0x1F;
    const size_t length = std::mbrtowc(character, &byte, 1, &state);
    if (length == static_cast<size_t>(-2)) continue;  // there is more of it
    if (length == static_cast<size_t>(-1)) {
      state = {};  // not UTF-8: not taken
      continue;
    }
    return 1;
  }
}

unsigned char LineEditor::Impl::Complete(EditLine* editor, wint_t /*character*/) {
  const LineInfo* info = el_line(editor);
  const absl::string_view line(info->buffer, static_cast<size_t>(info->cursor - info->buffer));
  const Completions found = CompleteLine(line);
  if (found.words.empty()) return CC_REFRESH_BEEP;
  std::string more = CommonBeginning(found.words).substr(line.size() - found.from);
  const bool goes_on = found.words[0].back() == '=' || found.words[0].back() == '/';
  if (found.words.size() == 1 && !goes_on) more.push_back(' ');
  if (!more.empty()) return el_insertstr(editor, more.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  std::fputc('\n', stdout);
  for (const std::string& word : found.words) std::fprintf(stdout, "%s  ", Printable(word).c_str());
  std::fputc('\n', stdout);
  std::fflush(stdout);
  return CC_REDISPLAY;
}

// A file that has grown far beyond what is offered is cut.
absl::Status LineEditor::Impl::LoadHistory() {
  if (absl::Status opened = OpenHistory(); !opened.ok()) return opened;
  const absl::StatusOr<std::string> text =
      ReadOwnFile(history_fd_, history_file_, kHistoryBytesMax);
  if (!text.ok()) return HistoryError(text.status());
  std::deque<std::string> lines;
  size_t count = 0;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    ++count;
    if (line.empty() || line.size() > kHistoryLineBytesMax) continue;
    lines.emplace_back(line);
    if (lines.size() > kHistoryLinesMax) lines.pop_front();
  }
  HistEvent event;
  for (const std::string& line : lines) history(history_, &event, H_ENTER, line.c_str());
  if (!lines.empty()) last_ = lines.back();
  const bool has_grown = count > 2 * kHistoryLinesMax || text->size() == kHistoryBytesMax;
  return has_grown ? Rewrite(lines) : absl::OkStatus();
}

absl::Status LineEditor::Impl::OpenHistory() {
  absl::StatusOr<rdma::UniqueFd> fd = OpenOwnFile(history_file_, O_APPEND | O_CREAT);
  if (!fd.ok()) return HistoryError(fd.status());
  // One that an editor saved may be open to others.
  if (fchmod(fd->get(), 0600) != 0) {
    return HistoryError(absl::UnknownError(
        absl::StrCat(history_file_, " can be read by others: ", std::strerror(errno))));
  }
  history_fd_ = *std::move(fd);
  return absl::OkStatus();
}

absl::Status LineEditor::Impl::Rewrite(const std::deque<std::string>& lines) {
  const std::string text = absl::StrCat(absl::StrJoin(lines, "\n"), "\n");
  if (absl::Status replaced = ReplaceOwnFile(history_file_, text); !replaced.ok())
    return HistoryError(replaced);
  return OpenHistory();
}

void LineEditor::Impl::Remember(const std::string& line) {
  if (line.empty() || line == last_) return;
  last_ = line;
  HistEvent event;
  history(history_, &event, H_ENTER, line.c_str());
  const std::string text = absl::StrCat(line, "\n");
  // One write, so that lines of two shells do not mix. A full disk costs the line its place.
  if (history_fd_.valid() && write(history_fd_.get(), text.data(), text.size()) < 0) return;
}

LineEditor::Read LineEditor::Impl::ReadLine(const std::string& prompt, std::string& line) {
  prompt_ = prompt;
  interrupted_ = false;
  el_resize(editor_);
  int count = 0;
  const char* text = el_gets(editor_, &count);
  if (text == nullptr || count <= 0) {
    std::fputs(interrupted_ ? "^C\n" : "\n", stdout);
    std::fflush(stdout);
    return interrupted_ ? Read::kInterrupted : Read::kEnd;
  }
  line.assign(text, static_cast<size_t>(count));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  Remember(line);
  return Read::kLine;
}

LineEditor::LineEditor(std::string history_file)
    : impl_(std::make_unique<Impl>(std::move(history_file))) {}
LineEditor::~LineEditor() = default;
const absl::Status& LineEditor::history_status() const { return impl_->history_status(); }
LineEditor::Read LineEditor::ReadLine(const std::string& prompt, std::string& line) {
  return impl_->ReadLine(prompt, line);
}

std::string HistoryFile() {
  const char* given = std::getenv("OSPREY_HISTORY");
  if (given != nullptr) return given;
  const char* home = std::getenv("HOME");
  if (home == nullptr || home[0] == '\0') return "";
  return absl::StrCat(home, "/.osprey_history");
}

}  // namespace osprey
