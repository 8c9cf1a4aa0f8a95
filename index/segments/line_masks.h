// Comparisons of all words of a line at once. Each executes the same instructions wherever a key
// is, so no branch depends on that. Every x86-64 has SSE2, and every arm64 has NEON.

#ifndef OSPREY_INDEX_SEGMENTS_LINE_MASKS_H_
#define OSPREY_INDEX_SEGMENTS_LINE_MASKS_H_

#include <cstddef>
#include <cstdint>

#include "index/layout/layout.h"
#include "index/layout/line.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace osprey::index {

// The upper halves of four words, and what LineMasks asks of them. A half that passes has its top
// bit set (arm64: all bits), and one that fails has it clear. Bits gathers sixteen such bits.
#if defined(__x86_64__)
struct FourHalves {
  static __m128i Of(uint32_t value) { return _mm_set1_epi32(static_cast<int>(value)); }
  static __m128i UpperHalves(const std::byte* words) {
    const auto* const pairs = reinterpret_cast<const __m128i*>(words);
    return _mm_castps_si128(_mm_shuffle_ps(_mm_castsi128_ps(_mm_load_si128(pairs)),
                                           _mm_castsi128_ps(_mm_load_si128(pairs + 1)),
                                           _MM_SHUFFLE(3, 1, 3, 1)));
  }
  static __m128i Shifted14(__m128i halves) { return _mm_srli_epi32(halves, 14); }
  static __m128i Equal(__m128i a, __m128i b) { return _mm_cmpeq_epi32(a, b); }
  static __m128i HasTopTwo(__m128i halves) {
    return _mm_and_si128(halves, _mm_slli_epi32(halves, 1));
  }
  static uint32_t Bits(__m128i a, __m128i b, __m128i c, __m128i d) {
    const __m128i all = _mm_packs_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d));
    return static_cast<uint32_t>(_mm_movemask_epi8(all));
  }
};
#elif defined(__aarch64__)
struct FourHalves {
  static uint32x4_t Of(uint32_t value) { return vdupq_n_u32(value); }
  static uint32x4_t UpperHalves(const std::byte* words) {
    return vld2q_u32(reinterpret_cast<const uint32_t*>(words)).val[1];
  }
  static uint32x4_t Shifted14(uint32x4_t halves) { return vshrq_n_u32(halves, 14); }
  static uint32x4_t Equal(uint32x4_t a, uint32x4_t b) { return vceqq_u32(a, b); }
  static uint32x4_t HasTopTwo(uint32x4_t halves) { return vcgeq_u32(halves, Of(3u << 30)); }
  static uint32_t Bits(uint32x4_t a, uint32x4_t b, uint32x4_t c, uint32x4_t d) {
    constexpr uint8_t kBits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint16x8_t low = vcombine_u16(vmovn_u32(a), vmovn_u32(b));
    const uint16x8_t high = vcombine_u16(vmovn_u32(c), vmovn_u32(d));
    const uint8x16_t bits = vandq_u8(vcombine_u8(vmovn_u16(low), vmovn_u16(high)), vld1q_u8(kBits));
    return vaddv_u8(vget_low_u8(bits)) | uint32_t{vaddv_u8(vget_high_u8(bits))} << 8;
  }
};
#else
#error "Osprey runs on x86-64 and arm64"
#endif

// One bit for each word of a line, from its first: the words that look like a slot with that
// fingerprint, and those that look like the head of an inline item.
class LineMasks {
 public:
  static uint32_t Slots(const Line& line, uint32_t fingerprint) {
    // Kind and fingerprint are the bits of an upper half above its 14 low ones.
    const auto wanted = FourHalves::Of(1u << 16 | fingerprint);
    return Mask(
        line, [&](auto upper) { return FourHalves::Equal(FourHalves::Shifted14(upper), wanted); });
  }
  static uint32_t InlineHeads(const Line& line) {
    return Mask(line, [](auto upper) { return FourHalves::HasTopTwo(upper); });
  }

 private:
  static constexpr uint32_t kHeaderWords = sizeof(RecordHeader) / kWordBytes;
  static_assert(kHeaderWords + kLineWords == 16 && sizeof(Line) == 16 * kWordBytes);
  static_assert(Slot{0, 0, 65535}.Pack() >> (32 + 14) == (1u << 16 | 65535));
  static_assert(InlineHead{}.Pack() >> 62 == 3);

  template <typename Test>
  static uint32_t Mask(const Line& line, Test&& test) {
    const auto* const words = reinterpret_cast<const std::byte*>(&line);
    constexpr size_t kQuarter = sizeof(Line) / 4;
    return FourHalves::Bits(test(FourHalves::UpperHalves(words)),
                            test(FourHalves::UpperHalves(words + kQuarter)),
                            test(FourHalves::UpperHalves(words + 2 * kQuarter)),
                            test(FourHalves::UpperHalves(words + 3 * kQuarter))) >>
           kHeaderWords;
  }
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SEGMENTS_LINE_MASKS_H_
