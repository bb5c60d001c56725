#include "core/packing/row_fit.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <numeric>
#include <vector>

#include "core/packing/ordered_bits.hpp"

namespace gristmill {
namespace {

constexpr std::uint32_t kNoRow = 0xffffffff;

// The numbers of pieces by length: those of length n are
// pieces[begins[n]:begins[n + 1]], in their order.
struct PiecesByLength {
  std::vector<std::uint32_t> pieces;
  std::vector<std::uint32_t> begins;

  PiecesByLength(std::uint32_t capacity, std::span<const std::uint32_t> lengths)
      : pieces(lengths.size()), begins(capacity + 2) {
    for (const auto length : lengths) ++begins[length + 1];
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    auto next = begins;
    for (std::uint32_t i = 0; i < lengths.size(); ++i) {
      pieces[next[lengths[i]]++] = i;
    }
  }
};

// If several rows have the same room, the last one that got this room is used
// first.
std::uint32_t fit_best(std::uint32_t capacity,
                       std::span<const std::uint32_t> lengths,
                       std::span<std::uint32_t> row_of) {
  const PiecesByLength sorted(capacity, lengths);
  OrderedBits rooms(capacity);
  // The last row with each room, and for each row, the one before it.
  std::vector<std::uint32_t> last_row(capacity, kNoRow);
  std::vector<std::uint32_t> row_before;
  for (auto length = capacity; length > 0; --length) {
    auto i = sorted.begins[length];
    const auto end = sorted.begins[length + 1];
    while (i < end) {
      const auto found = rooms.at_least(length);
      auto room = static_cast<std::uint32_t>(found);
      auto row = static_cast<std::uint32_t>(row_before.size());
      if (found == OrderedBits::kNone) {
        room = capacity;
        row_before.push_back(kNoRow);
      } else {
        row = last_row[room];
        last_row[room] = row_before[row];
        if (last_row[room] == kNoRow) rooms.erase(room);
      }
      // This row is then the fullest one that has room.
      do {
        row_of[sorted.pieces[i++]] = row;
        room -= length;
      } while (i < end && room >= length);
      if (room == 0) continue;
      if (last_row[room] == kNoRow) rooms.insert(room);
      row_before[row] = last_row[room];
      last_row[room] = row;
    }
  }
  return static_cast<std::uint32_t>(row_before.size());
}

std::uint32_t fit_longest(std::uint32_t capacity,
                          std::span<const std::uint32_t> lengths,
                          std::span<std::uint32_t> row_of) {
  PiecesByLength sorted(capacity, lengths);
  OrderedBits left(capacity + 1);  // The lengths of pieces that are left.
  std::vector<std::uint32_t> next = sorted.begins;
  for (const auto length : lengths) left.insert(length);
  std::uint32_t row = 0;
  for (std::size_t num_left = lengths.size(); num_left > 0; ++row) {
    auto room = capacity;
    for (;;) {
      const auto length = left.at_most(room);
      if (length == OrderedBits::kNone) break;
      const auto end = sorted.begins[length + 1];
      do {
        row_of[sorted.pieces[next[length]++]] = row;
        room -= static_cast<std::uint32_t>(length);
        --num_left;
      } while (next[length] < end && room >= length);
      if (next[length] == end) left.erase(length);
    }
  }
  return row;
}

// A tree over rows; each node has the most room of any row below it.
class RoomTree {
 public:
  explicit RoomTree(std::size_t rows, std::uint32_t capacity)
      : leaves_(std::bit_ceil(rows)), room_(2 * leaves_, capacity) {}

  // Takes `length` from the first row that has it.  Returns the row.
  // REQUIRES: a row has room.
  std::uint32_t take(std::uint32_t length) noexcept {
    std::size_t node = 1;
    while (node < leaves_) {
      node *= 2;
      node += room_[node] < length ? 1 : 0;
    }
    const auto row = static_cast<std::uint32_t>(node - leaves_);
    room_[node] -= length;
    while ((node /= 2) > 0) {
      const auto most = std::max(room_[2 * node], room_[2 * node + 1]);
      if (room_[node] == most) break;
      room_[node] = most;
    }
    return row;
  }

 private:
  std::size_t leaves_;
  std::vector<std::uint32_t> room_;
};

std::uint32_t fit_first(std::uint32_t capacity,
                        std::span<const std::uint32_t> lengths,
                        std::span<std::uint32_t> row_of) {
  if (lengths.empty()) return 0;
  std::uint64_t tokens = 0;
  for (const auto length : lengths) tokens += length;
  // Two consecutive rows have more than `capacity` tokens.
  const auto max_rows =
      std::min<std::uint64_t>(lengths.size(), 2 * (tokens / capacity + 1));
  RoomTree rooms(static_cast<std::size_t>(max_rows), capacity);
  std::uint32_t rows = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    row_of[i] = rooms.take(lengths[i]);
    rows = std::max(rows, row_of[i] + 1);
  }
  return rows;
}

std::uint64_t count_best(std::uint32_t capacity,
                         std::span<const std::uint64_t> pieces) {
  OrderedBits rooms(capacity);
  std::vector<std::uint64_t> rows_with(capacity);  // By room.
  const auto add_rows = [&](std::size_t room, std::uint64_t count) {
    if (room == 0 || count == 0) return;
    if (rows_with[room] == 0) rooms.insert(room);
    rows_with[room] += count;
  };
  std::uint64_t rows = 0;
  for (std::size_t length = capacity; length > 0; --length) {
    for (auto left = pieces[length]; left > 0;) {
      auto room = rooms.at_least(length);
      const bool opens_rows = room == OrderedBits::kNone;
      if (opens_rows) room = capacity;
      const auto per_row = room / length;
      const auto wanted = (left + per_row - 1) / per_row;
      auto used = wanted;
      if (opens_rows) {
        rows += wanted;
      } else {
        used = std::min(wanted, rows_with[room]);
        rows_with[room] -= used;
        if (rows_with[room] == 0) rooms.erase(room);
      }
      const auto full = std::min(used, left / per_row);
      add_rows(room - per_row * length, full);
      left -= full * per_row;
      if (full == used) continue;
      add_rows(room - left * length, 1);  // It takes the rest.
      left = 0;
    }
  }
  return rows;
}

std::uint64_t count_longest(std::uint32_t capacity,
                            std::span<std::uint64_t> pieces) {
  OrderedBits left(capacity + 1);
  std::uint64_t rows = pieces[capacity];  // There may be very many.
  std::uint64_t num_left = 0;
  for (std::size_t length = 1; length < capacity; ++length) {
    if (pieces[length] > 0) left.insert(length);
    num_left += pieces[length];
  }
  for (; num_left > 0; ++rows) {
    std::size_t room = capacity;
    for (;;) {
      const auto length = left.at_most(room);
      if (length == OrderedBits::kNone) break;
      const auto used = std::min<std::uint64_t>(pieces[length], room / length);
      pieces[length] -= used;
      num_left -= used;
      room -= static_cast<std::size_t>(used) * length;
      if (pieces[length] == 0) left.erase(length);
    }
  }
  return rows;
}

}  // namespace

std::uint32_t fit_rows(PackMethod method, std::uint32_t capacity,
                       std::span<const std::uint32_t> lengths,
                       std::span<std::uint32_t> row_of) {
  assert(lengths.size() == row_of.size());
  switch (method) {
    case PackMethod::kBestFit:
      return fit_best(capacity, lengths, row_of);
    case PackMethod::kLongestFirst:
      return fit_longest(capacity, lengths, row_of);
    default:
      assert(method == PackMethod::kFirstFit);
      return fit_first(capacity, lengths, row_of);
  }
}

std::uint64_t count_rows(PackMethod method, std::uint32_t capacity,
                         std::span<std::uint64_t> pieces) {
  return method == PackMethod::kBestFit ? count_best(capacity, pieces)
                                        : count_longest(capacity, pieces);
}

}  // namespace gristmill
