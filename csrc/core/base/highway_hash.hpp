// HighwayHash computes the 64-bit HighwayHash of bytes that come in pieces.
//
// Long pieces go through AVX2 where the processor has it; the portable code
// gives the same hashes.
//
// Thread safety: const methods may overlap; append() needs the object alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gristmill {

class HighwayHash {
 public:
  using Key = std::array<std::uint64_t, 4>;

  // Which code runs: the fastest there is, or the portable one for tests.
  enum class Speed { kFastest, kPortable };

  explicit HighwayHash(const Key& key, Speed speed = Speed::kFastest) noexcept;

  // Adds bytes behind those of earlier calls.
  void append(std::span<const std::byte> bytes) noexcept;

  // Adds bytes to two hashes, in about half the time that each takes alone
  // where they are as many: one waits for its multiplications, two do not.
  static void append_both(HighwayHash& left, std::span<const std::byte> to_left,
                          HighwayHash& right,
                          std::span<const std::byte> to_right) noexcept;

  // Returns the hash of everything appended so far.
  [[nodiscard]] std::uint64_t value() const noexcept;

  // The hash of one piece.
  [[nodiscard]] static std::uint64_t of(const Key& key,
                                        std::span<const std::byte> bytes) {
    HighwayHash hash(key);
    hash.append(bytes);
    return hash.value();
  }

  // Bytes that are hashed in one step.
  static constexpr std::size_t kPacket = 32;

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

  // Completes the packet that was begun, if `bytes` do; returns those left.
  std::span<const std::byte> complete(
      std::span<const std::byte> bytes) noexcept;

  const Code code_;
  State state_;
  std::array<std::byte, kPacket> rest_;  // Bytes of a packet not yet whole.
  std::size_t rest_bytes_ = 0;
};

}  // namespace gristmill
