// HighwayHash computes the 64-bit HighwayHash of bytes that arrive in pieces.
//
// Long pieces use AVX2 if the processor supports it.  The portable code
// computes the same hashes.
//
// Thread safety: const methods may overlap; append() needs exclusive access.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gristmill {

class HighwayHash {
 public:
  using Key = std::array<std::uint64_t, 4>;

  // The implementation: the fastest available, or the portable one for tests.
  enum class Speed { kFastest, kPortable };

  explicit HighwayHash(const Key& key, Speed speed = Speed::kFastest) noexcept;

  // Appends bytes to those of earlier calls.
  void append(std::span<const std::byte> bytes) noexcept;

  // Appends bytes to two hashes.  If both get the same number of bytes, this
  // takes about half the time of two calls, because the multiplications of the
  // two overlap.  REQUIRES: two different objects with the same Speed.
  static void append_both(HighwayHash& left, std::span<const std::byte> to_left,
                          HighwayHash& right,
                          std::span<const std::byte> to_right) noexcept;

  // Returns the hash of everything appended so far.
  [[nodiscard]] std::uint64_t value() const noexcept;

  // Returns the hash of one piece.
  [[nodiscard]] static std::uint64_t of(const Key& key,
                                        std::span<const std::byte> bytes) {
    HighwayHash hash(key);
    hash.append(bytes);
    return hash.value();
  }

  // Bytes that one step hashes.
  static constexpr std::size_t kPacketBytes = 32;

  struct alignas(32) State {
    std::array<std::uint64_t, 4> v0, v1, mul0, mul1;
  };

 private:
  struct Code {
    void (*update)(State&, const std::byte* packets, std::size_t count);
    void (*update_both)(State& left, const std::byte* to_left, State& right,
                        const std::byte* to_right, std::size_t count);
    void (*finish)(State&);
  };
  static Code pick_code(Speed speed) noexcept;

  // Adds `bytes` to the partial packet, if there is one, and hashes the packet
  // if it is then complete.  Returns the bytes that were not added.
  std::span<const std::byte> complete(
      std::span<const std::byte> bytes) noexcept;

  const Code code_;
  State state_;
  // The first partial_bytes_ bytes of an incomplete packet.
  std::array<std::byte, kPacketBytes> partial_;
  std::size_t partial_bytes_ = 0;
};

}  // namespace gristmill
