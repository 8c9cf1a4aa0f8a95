// The main of a target without libFuzzer: a test that gives it every input which is kept.
//
//   replay TARGET                  the corpus, and a test for each regression (its file's name is
//                                  its sentence)
//   replay TARGET --file=PATH      that input alone
//   replay TARGET --unpack=FOLDER  the corpus as files, for libFuzzer
//   replay TARGET --pack=FOLDER    makes the corpus of these files (printed: its size)
//
// A corpus is one file, corpus/TARGET: of each input its length (u32, little-endian) and its bytes.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "tests/fuzz/support/input.h"

namespace osprey::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr char kFolder[] = "tests/fuzz";

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<fs::path> FilesIn(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

bool Unpack(const std::string& packed, std::vector<std::string>& inputs) {
  for (size_t at = 0; at < packed.size();) {
    uint32_t length = 0;
    if (packed.size() - at < sizeof(length)) return false;
    std::memcpy(&length, packed.data() + at, sizeof(length));
    at += sizeof(length);
    if (packed.size() - at < length) return false;
    inputs.push_back(packed.substr(at, length));
    at += length;
  }
  return true;
}

void RunOne(const std::string& input) {
  // Exactly as long as the input, so that a sanitizer sees a read beyond it.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

class Replay : public ::testing::Test {
 public:
  Replay(fs::path path, bool packed) : path_(std::move(path)), packed_(packed) {}

  void TestBody() override {
    std::vector<std::string> inputs;
    const std::string bytes = ReadFile(path_);
    if (!packed_) {
      inputs.push_back(bytes);
    } else {
      ASSERT_TRUE(Unpack(bytes, inputs)) << path_ << " is cut off";
      ASSERT_FALSE(inputs.empty()) << path_ << " is missing or empty";
    }
    for (const std::string& input : inputs) RunOne(input);
  }

 private:
  const fs::path path_;
  const bool packed_;
};

void Register(const std::string& target, const std::string& sentence, const fs::path& path,
              bool packed) {
  const std::string suite = absl::StrCat("Fuzz_", target);
  ::testing::RegisterTest(
      suite.c_str(), sentence.c_str(), nullptr, nullptr, __FILE__, __LINE__,
      [path, packed]() -> ::testing::Test* { return new Replay(path, packed); });
}

int UnpackTo(const fs::path& corpus, const fs::path& folder) {
  std::vector<std::string> inputs;
  if (!Unpack(ReadFile(corpus), inputs)) return std::cerr << corpus << " is cut off\n", 1;
  fs::create_directories(folder);
  for (size_t i = 0; i < inputs.size(); ++i)
    std::ofstream(folder / absl::StrCat("kept-", i), std::ios::binary) << inputs[i];
  return 0;
}

int PackFrom(const fs::path& corpus, const fs::path& folder) {
  const std::vector<fs::path> files = FilesIn(folder);
  std::ofstream out(corpus, std::ios::binary);
  size_t bytes = 0;
  for (const fs::path& file : files) {
    const std::string input = ReadFile(file);
    const auto length = static_cast<uint32_t>(input.size());
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));
    out << input;
    bytes += sizeof(length) + input.size();
  }
  std::cout << corpus.string() << ": " << files.size() << " inputs, " << bytes << " bytes\n";
  return out.flush().good() ? 0 : 1;
}

}  // namespace
}  // namespace osprey::fuzz

int main(int argc, char** argv) {
  namespace fuzz = osprey::fuzz;
  ::testing::InitGoogleTest(&argc, argv);
  if (argc < 2) return std::cerr << "usage: replay TARGET [--file=|--unpack=|--pack=PATH]\n", 2;
  const std::string target = argv[1];
  const fuzz::fs::path corpus = fuzz::fs::path(fuzz::kFolder) / "corpus" / target;
  for (int i = 2; i < argc; ++i) {
    absl::string_view path = argv[i];
    if (absl::ConsumePrefix(&path, "--unpack=")) return fuzz::UnpackTo(corpus, std::string(path));
    if (absl::ConsumePrefix(&path, "--pack=")) return fuzz::PackFrom(corpus, std::string(path));
    if (absl::ConsumePrefix(&path, "--file="))
      return fuzz::RunOne(fuzz::ReadFile(std::string(path))), 0;
    return std::cerr << "replay: " << argv[i] << " is no option\n", 2;
  }
  fuzz::Register(target, "TheInputsOfTheCorpusHarmNothing", corpus, /*packed=*/true);
  for (const fuzz::fs::path& file :
       fuzz::FilesIn(fuzz::fs::path(fuzz::kFolder) / "regressions" / target))
    fuzz::Register(target, file.filename().string(), file, /*packed=*/false);
  return RUN_ALL_TESTS();
}
