#include "core/packing/packed_window.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "core/packing/feature_fit.hpp"

namespace gristmill {
namespace {

using Span = PackedWindow::Span;
using Window = DocumentWindows::Window;

constexpr std::size_t kMaxPieces = std::size_t{1} << 31;

// Documents whose lengths are read together: few enough for the cache, enough
// to overlap the waits for memory.
constexpr std::size_t kBlockDocuments = 1024;

Status too_many_pieces(const Window& window) {
  return {Code::kInvalidArgument,
          "a window must have fewer than 2**31 spans, got more for the ",
          window.size,
          " documents of window ",
          window.number,
          ": choose a smaller window or a larger capacity"};
}

// Calls add(offset, length) for each document of the window, in order, until it
// returns an error.
template <class Add>
Status for_each_length(const DocumentLengths& lengths,
                       const DocumentWindows& windows, const Window& window,
                       Add add) {
  std::array<std::int64_t, kBlockDocuments> numbers;
  for (std::int64_t first = 0; first < window.size;) {
    const auto block = std::span(numbers).first(
        static_cast<std::size_t>(std::min<std::int64_t>(
            window.size - first, static_cast<std::int64_t>(kBlockDocuments))));
    std::iota(block.begin(), block.end(), first);
    windows.resolve(window, block);
    lengths.gather(block);
    for (const auto length : block) {
      TRY(add(static_cast<std::uint32_t>(first), length));
      ++first;
    }
  }
  return {};
}

// Pieces of the documents of a window, and the rows that they are assigned to.
struct Pieces {
  std::vector<Span> spans;
  std::vector<std::uint32_t> row_of;  // For each span.
  std::uint32_t rows = 0;
};

// Appends the pieces of all documents of a window, in order.  take(length)
// returns the length of the next piece of a document with `length` tokens left.
template <class Take>
Status cut(const PackRule& rule, const DocumentLengths& lengths,
           const DocumentWindows& windows, const Window& window,
           std::vector<Span>& spans, Take take) {
  spans.reserve(static_cast<std::size_t>(window.size));
  TRY(for_each_length(
      lengths, windows, window,
      [&](std::uint32_t offset, std::int64_t length) -> Status {
        if (length > rule.capacity) {
          if (rule.long_documents == LongDocuments::kDrop) return {};
          if (static_cast<std::uint64_t>(length / rule.capacity) >
              kMaxPieces - spans.size()) {
            return too_many_pieces(window);
          }
        }
        for (std::int64_t begin = 0; begin < length;) {
          const std::uint32_t size = take(length - begin);
          spans.push_back({begin, offset, size});
          begin += size;
        }
        return {};
      }));
  if (spans.size() >= kMaxPieces) return too_many_pieces(window);
  return {};
}

Result<Pieces> fit(const PackRule& rule, const DocumentLengths& lengths,
                   const DocumentWindows& windows, const Window& window) {
  Pieces pieces;
  std::vector<std::uint32_t> piece_lengths;
  piece_lengths.reserve(static_cast<std::size_t>(window.size));
  TRY(cut(rule, lengths, windows, window, pieces.spans, [&](std::int64_t left) {
    piece_lengths.push_back(static_cast<std::uint32_t>(
        std::min<std::int64_t>(left, rule.capacity)));
    return piece_lengths.back();
  }));
  pieces.row_of.resize(pieces.spans.size());
  pieces.rows =
      fit_rows(rule.method, rule.capacity, piece_lengths, pieces.row_of);
  return pieces;
}

// Returns whether a length is in [0, capacity].  Lengths may have changed since
// they were checked.
bool fits(std::int64_t length, std::int64_t capacity) {
  return static_cast<std::uint64_t>(length) <=
         static_cast<std::uint64_t>(capacity);
}

// Calls add(offset, lengths) for each document of the window, in order, until
// it returns an error.  `lengths` has the length of each feature.
template <class Add>
Status for_each_document(const PackRule& rule, const DocumentLengths& lengths,
                         const DocumentWindows& windows, const Window& window,
                         Add add) {
  const auto features = rule.extras.size() + 1;
  std::vector<std::int64_t> documents(kBlockDocuments);
  std::vector<std::vector<std::int64_t>> found(features);
  std::vector<std::int64_t> of_document(features);
  for (std::int64_t first = 0; first < window.size;) {
    documents.resize(static_cast<std::size_t>(
        std::min<std::int64_t>(window.size - first, kBlockDocuments)));
    std::iota(documents.begin(), documents.end(), first);
    windows.resolve(window, documents);
    for (auto& each : found) each = documents;
    lengths.gather(found[0]);
    for (std::size_t i = 1; i < features; ++i) {
      rule.extras[i - 1].lengths.gather(found[i]);
    }
    for (std::size_t k = 0; k < documents.size(); ++k) {
      for (std::size_t i = 0; i < features; ++i) of_document[i] = found[i][k];
      for (std::size_t i = 1; i < features; ++i) {
        const auto& extra = rule.extras[i - 1];
        if (rule.long_documents == LongDocuments::kDrop ||
            fits(of_document[i], extra.capacity)) {
          continue;
        }
        return too_long_error(extra, documents[k], of_document[i]);
      }
      TRY(add(static_cast<std::uint32_t>(first), of_document));
      ++first;
    }
  }
  return {};
}

// Appends the pieces of all documents of a window, in order, like cut().
// take(length, lengths) returns the length of the next piece of a document with
// `length` tokens left.  `lengths` has the lengths of the extra features that
// the piece has: all of them for the first piece of a document.
template <class Take>
Status cut_features(const PackRule& rule, const DocumentLengths& lengths,
                    const DocumentWindows& windows, const Window& window,
                    std::vector<Span>& spans, Take take) {
  const auto is_too_long = [&](std::span<const std::int64_t> of_document) {
    bool found = !fits(of_document[0], rule.capacity);
    for (std::size_t i = 0; i < rule.extras.size(); ++i) {
      found |= !fits(of_document[i + 1], rule.extras[i].capacity);
    }
    return found;
  };
  spans.reserve(static_cast<std::size_t>(window.size));
  TRY(for_each_document(
      rule, lengths, windows, window,
      [&](std::uint32_t offset, std::span<std::int64_t> of_document) -> Status {
        if (rule.long_documents == LongDocuments::kDrop &&
            is_too_long(of_document)) {
          return {};
        }
        const auto tokens = std::max<std::int64_t>(of_document[0], 0);
        if (std::ranges::count(of_document, 0) == std::ssize(of_document)) {
          return {};
        }
        if (static_cast<std::uint64_t>(tokens / rule.capacity) + 1 >
            kMaxPieces - spans.size()) {
          return too_many_pieces(window);
        }
        const auto extras = of_document.subspan(1);
        std::int64_t begin = 0;
        do {
          const std::uint32_t size = take(tokens - begin, extras);
          spans.push_back({begin, offset, size});
          begin += size;
          std::ranges::fill(extras, 0);
        } while (begin < tokens);
        return {};
      }));
  if (spans.size() >= kMaxPieces) return too_many_pieces(window);
  return {};
}

Result<Pieces> fit_all_features(const PackRule& rule,
                                const DocumentLengths& lengths,
                                const DocumentWindows& windows,
                                const Window& window) {
  Pieces pieces;
  std::vector<std::uint32_t> piece_lengths;
  TRY(cut_features(rule, lengths, windows, window, pieces.spans,
                   [&](std::int64_t left, std::span<std::int64_t> extras) {
                     const auto size = static_cast<std::uint32_t>(
                         std::min<std::int64_t>(left, rule.capacity));
                     piece_lengths.push_back(size);
                     for (const auto length : extras) {
                       piece_lengths.push_back(
                           static_cast<std::uint32_t>(length));
                     }
                     return size;
                   }));
  std::vector<std::uint32_t> capacities{rule.capacity};
  for (const auto& extra : rule.extras) {
    capacities.push_back(static_cast<std::uint32_t>(extra.capacity));
  }
  pieces.row_of.resize(pieces.spans.size());
  pieces.rows =
      fit_features(rule.method, capacities, piece_lengths, pieces.row_of);
  return pieces;
}

// Starts a row when the extra features of a document do not fit into the last
// one.
Result<Pieces> split_all_features(const PackRule& rule,
                                  const DocumentLengths& lengths,
                                  const DocumentWindows& windows,
                                  const Window& window) {
  Pieces pieces;
  std::uint32_t room = 0;
  std::vector<std::int64_t> extra_rooms(rule.extras.size());
  TRY(cut_features(
      rule, lengths, windows, window, pieces.spans,
      [&](std::int64_t left, std::span<std::int64_t> extras) {
        if (pieces.rows == 0 || (room == 0 && left > 0) ||
            !std::ranges::equal(extras, extra_rooms, std::less_equal{})) {
          room = rule.capacity;
          for (std::size_t i = 0; i < extras.size(); ++i) {
            extra_rooms[i] = rule.extras[i].capacity;
          }
          ++pieces.rows;
        }
        for (std::size_t i = 0; i < extras.size(); ++i) {
          extra_rooms[i] -= extras[i];
        }
        const auto size =
            static_cast<std::uint32_t>(std::min<std::int64_t>(left, room));
        pieces.row_of.push_back(pieces.rows - 1);
        room -= size;
        return size;
      }));
  return pieces;
}

Result<Pieces> split(const PackRule& rule, const DocumentLengths& lengths,
                     const DocumentWindows& windows, const Window& window) {
  Pieces pieces;
  std::uint32_t room = 0;  // The room of the last row.
  TRY(cut(rule, lengths, windows, window, pieces.spans, [&](std::int64_t left) {
    if (room == 0) {
      room = rule.capacity;
      ++pieces.rows;
    }
    const auto size =
        static_cast<std::uint32_t>(std::min<std::int64_t>(left, room));
    pieces.row_of.push_back(pieces.rows - 1);
    room -= size;
    return size;
  }));
  return pieces;
}

Result<Pieces> assign(const PackRule& rule, const DocumentLengths& lengths,
                      const DocumentWindows& windows, const Window& window) {
  const bool splits = rule.method == PackMethod::kSplit;
  if (!rule.extras.empty()) {
    return splits ? split_all_features(rule, lengths, windows, window)
                  : fit_all_features(rule, lengths, windows, window);
  }
  return splits ? split(rule, lengths, windows, window)
                : fit(rule, lengths, windows, window);
}

}  // namespace

Result<PackedWindow> PackedWindow::pack(const PackRule& rule,
                                        const DocumentLengths& lengths,
                                        const DocumentWindows& windows,
                                        const Window& window) {
  const Pieces pieces = TRY(assign(rule, lengths, windows, window));
  PackedWindow packed;
  packed.row_begins_.resize(std::size_t{pieces.rows} + 1);
  for (const auto row : pieces.row_of) ++packed.row_begins_[row + 1];
  std::partial_sum(packed.row_begins_.begin(), packed.row_begins_.end(),
                   packed.row_begins_.begin());
  packed.spans_.resize(pieces.spans.size());
  auto next = packed.row_begins_;
  for (std::size_t i = 0; i < pieces.spans.size(); ++i) {
    packed.spans_[next[pieces.row_of[i]]++] = pieces.spans[i];
  }
  return packed;
}

Result<std::int64_t> PackedWindow::count_rows(const PackRule& rule,
                                              const DocumentLengths& lengths,
                                              const DocumentWindows& windows,
                                              const Window& window) {
  if (rule.method == PackMethod::kFirstFit || !rule.extras.empty()) {
    return TRY(assign(rule, lengths, windows, window)).rows;
  }
  std::vector<std::uint64_t> pieces;
  if (rule.method != PackMethod::kSplit) pieces.resize(rule.capacity + 1);
  std::uint64_t num_pieces = 0;
  std::uint64_t tokens = 0;
  const std::int64_t capacity = rule.capacity;
  TRY(for_each_length(
      lengths, windows, window,
      [&](std::uint32_t, std::int64_t length) -> Status {
        if (length <= 0) return {};
        std::int64_t full = 0;
        if (length > capacity) {
          if (rule.long_documents == LongDocuments::kDrop) return {};
          full = length / capacity;
        }
        num_pieces += static_cast<std::uint64_t>(full) +
                      (length > full * capacity ? 1 : 0);
        tokens += static_cast<std::uint64_t>(length);
        if (num_pieces >= kMaxPieces) return too_many_pieces(window);
        if (pieces.empty()) return {};
        pieces[rule.capacity] += static_cast<std::uint64_t>(full);
        ++pieces[static_cast<std::size_t>(length - full * capacity)];
        return {};
      }));
  if (pieces.empty()) {
    return static_cast<std::int64_t>((tokens + rule.capacity - 1) /
                                     rule.capacity);
  }
  pieces[0] = 0;  // Long documents without a remaining piece.
  return static_cast<std::int64_t>(
      gristmill::count_rows(rule.method, rule.capacity, pieces));
}

void PackedWindow::replace(std::span<const std::uint32_t> numbers,
                           std::span<const std::vector<Span>> rows) {
  std::vector<std::span<const Span>> all;
  all.reserve(num_rows());
  for (std::size_t i = 0; i < num_rows(); ++i) all.push_back(row(i));
  for (std::size_t i = 0; i < numbers.size(); ++i) all[numbers[i]] = rows[i];
  *this = concatenate(all);
}

void PackedWindow::reorder(std::span<const std::uint32_t> order) {
  std::vector<std::span<const Span>> all;
  all.reserve(num_rows());
  for (const auto number : order) all.push_back(row(number));
  *this = concatenate(all);
}

PackedWindow PackedWindow::concatenate(
    std::span<const std::span<const Span>> rows) {
  PackedWindow window;
  std::size_t num_spans = 0;
  for (const auto& row : rows) num_spans += row.size();
  window.spans_.reserve(num_spans);
  window.row_begins_.reserve(rows.size() + 1);
  for (const auto& row : rows) {
    window.row_begins_.push_back(
        static_cast<std::uint32_t>(window.spans_.size()));
    window.spans_.insert(window.spans_.end(), row.begin(), row.end());
  }
  window.row_begins_.push_back(
      static_cast<std::uint32_t>(window.spans_.size()));
  return window;
}

}  // namespace gristmill
