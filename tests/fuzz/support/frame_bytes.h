// Frames as the scripts of fuzz targets put them together.

#ifndef OSPREY_TESTS_FUZZ_SUPPORT_FRAME_BYTES_H_
#define OSPREY_TESTS_FUZZ_SUPPORT_FRAME_BYTES_H_

#include <cstddef>
#include <initializer_list>
#include <string>

#include "absl/strings/string_view.h"
#include "rdma/wire/protocol.h"

namespace osprey::fuzz {

inline std::string Joined(std::initializer_list<rdma::FrameBytes> pieces) {
  std::string frame;
  for (rdma::FrameBytes piece : pieces)
    frame.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  return frame;
}

inline rdma::FrameBytes BytesOf(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace osprey::fuzz

#endif  // OSPREY_TESTS_FUZZ_SUPPORT_FRAME_BYTES_H_
