// OwnMemory keeps its contents when it grows, shrinks or moves.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/base/own_memory.hpp"
#include "core/check.hpp"

using namespace gristmill;

namespace {

constexpr std::size_t kSizes[] = {0,       1,       1000,    1 << 20, 5 << 20,
                                  3 << 20, 1 << 10, 7 << 20, 0,       1 << 10};

// Returns the expected byte at a place.
std::byte byte_at(std::size_t place) {
  return static_cast<std::byte>(place * 7 / 64);
}

std::size_t wrong_bytes(const OwnMemory& memory, std::size_t bytes) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    wrong += memory.data()[i] != byte_at(i);
  }
  return wrong;
}

void test_resize_keeps_contents() {
  OwnMemory memory;
  std::size_t before = 0;
  for (const std::size_t size : kSizes) {
    CHECK(memory.resize(size));
    CHECK_EQ(memory.size(), size);
    CHECK_EQ(wrong_bytes(memory, std::min(before, size)), std::size_t{0});
    for (std::size_t i = 0; i < size; ++i) memory.data()[i] = byte_at(i);
    before = size;
  }
}

void test_failed_resize_changes_nothing() {
  OwnMemory memory;
  CHECK(!memory.resize(PTRDIFF_MAX));
  CHECK(memory.resize(2 << 20));
  memory.data()[0] = std::byte{3};
  CHECK(!memory.resize(PTRDIFF_MAX));
  CHECK_EQ(memory.size(), std::size_t{2 << 20});
  CHECK(memory.data()[0] == std::byte{3});
}

void test_move_transfers_memory() {
  OwnMemory large, small;
  CHECK(large.resize(2 << 20) && small.resize(10));
  const std::byte* const at = large.data();
  small = std::move(large);
  CHECK(small.data() == at);
  CHECK_EQ(small.size(), std::size_t{2 << 20});
}

}  // namespace

int main() {
  test_resize_keeps_contents();
  test_failed_resize_changes_nothing();
  test_move_transfers_memory();
}
