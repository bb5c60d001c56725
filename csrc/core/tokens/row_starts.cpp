#include "core/tokens/row_starts.hpp"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "core/base/own_memory.hpp"
#include "core/base/pool.hpp"
#include "core/files/verify.hpp"
#include "core/indices/random_state.hpp"

namespace gristmill {
namespace {

// Lengths that are requested from memory before the first of them is needed.
constexpr std::size_t kLengthsAhead = 128;

Status changed_lengths() {
  return damaged(
      "the lengths of the documents changed while their rows were computed: "
      "wait until the data set is complete");
}

// Finds the starts of rows in one of the two parts of a shuffled order, from
// the last document to the first.
template <class Word>
class BackwardStarts {
 public:
  // The part has the tokens [begin, end) of the concatenation.
  // REQUIRES: there are rows.
  BackwardStarts(std::span<const Word> lengths, const ShuffleRule& rule,
                 std::int64_t begin, std::int64_t end,
                 std::span<RowStart<Word>> starts)
      : lengths_(lengths.data()),
        row_tokens_(rule.row_tokens),
        extra_(rule.has_extra_token ? 1 : 0),
        starts_(starts),
        token_(end) {
    // Row r starts in the document with the last token of row r - 1.  If rows
    // have an extra token, it is the first one of row r.
    row_ = end < extra_ ? 0 : (end - extra_) / row_tokens_;
    row_ = std::min(row_, static_cast<std::int64_t>(starts.size()) - 1);
    const std::int64_t first =
        begin < extra_ ? 0 : (begin - extra_) / row_tokens_ + 1;
    // add() overwrites the start before the first one of this part.
    kept_ = std::max<std::int64_t>(std::min(first - 1, row_), 0);
    kept_start_ = starts[static_cast<std::size_t>(kept_)];
  }

  // Adds the documents at positions [0, documents.size()) + `first`, which
  // precede those of earlier calls.
  void add(std::span<const std::uint32_t> documents, std::size_t first) {
    std::int64_t row = row_;
    std::int64_t token = token_;
    // The token that must be in the document for the row to start in it.
    std::int64_t needed = row * row_tokens_ + extra_;
    for (std::size_t i = documents.size(); i > 0;) {
      // Requesting the lengths between computations hides most of the time of
      // their cache misses.
      __builtin_prefetch(lengths_ +
                         documents[std::max(i, kLengthsAhead) - kLengthsAhead]);
      --i;
      const auto set_start = [&] {
        // Row -1 does not exist; row 0 starts with the first document.
        starts_[static_cast<std::size_t>(std::max<std::int64_t>(row, 0))] = {
            static_cast<Word>(first + i),
            static_cast<Word>(needed - extra_ - token)};
      };
      token -= static_cast<std::int64_t>(lengths_[documents[i]]);
      // Without a branch, because it would often be mispredicted.
      set_start();
      const bool starts_here = needed > token;
      row -= starts_here ? 1 : 0;
      needed -= starts_here ? row_tokens_ : 0;
      while (needed > token && row > 0) [[unlikely]] {
        set_start();
        --row;
        needed -= row_tokens_;
      }
    }
    row_ = row;
    token_ = token;
  }

  // Returns the first token of the documents added so far.  Restores the start
  // that was overwritten.
  std::int64_t finish() {
    starts_[static_cast<std::size_t>(kept_)] = kept_start_;
    return token_;
  }

 private:
  const Word* const lengths_;
  const std::int64_t row_tokens_;
  const std::int64_t extra_;
  const std::span<RowStart<Word>> starts_;
  std::int64_t token_;  // The first one of the documents added so far.
  std::int64_t row_ = 0;
  std::int64_t kept_ = 0;
  RowStart<Word> kept_start_;
};

// The documents of all epochs, in their two parts.
struct Parts {
  explicit Parts(const ShuffleRule& rule, std::span<std::uint32_t> all) {
    const std::size_t documents =
        rule.epochs == 0 ? 0 : all.size() / rule.epochs;
    spans[0] = all.first(documents * rule.first_epochs);
    spans[1] = all.subspan(spans[0].size());
    for (std::size_t i = 0; i < 2; ++i) moving[i] = spans[i].size();
    const std::int64_t middle =
        rule.tokens * static_cast<std::int64_t>(rule.first_epochs);
    const std::int64_t end =
        rule.tokens * static_cast<std::int64_t>(rule.epochs);
    tokens = {0, middle, end};
  }

  std::array<std::span<std::uint32_t>, 2> spans;
  // The number of documents at the beginning that may still move.
  std::array<std::atomic<std::size_t>, 2> moving;
  std::array<std::int64_t, 3> tokens{};  // The bounds of the parts.
};

void shuffle_documents(RandomState& random, std::size_t num_documents,
                       Parts& parts) {
  for (std::size_t i = 0; i < 2; ++i) {
    const auto part = parts.spans[i];
    for (std::size_t begin = 0; begin < part.size(); begin += num_documents) {
      const auto epoch = part.subspan(begin, num_documents);
      std::iota(epoch.begin(), epoch.end(), 0U);
    }
    if (part.empty()) continue;
    random.shuffle(part, [&parts, i](std::size_t moving) {
      parts.moving[i].store(moving, std::memory_order_release);
      parts.moving[i].notify_one();
    });
  }
}

// `order` has the numbers of all rows, in order.
void shuffle_rows(RandomState& random, std::size_t first_rows,
                  std::span<std::uint32_t> order) {
  const auto ignore = [](std::size_t) {};
  random.shuffle(order.first(first_rows), ignore);
  random.shuffle(order.subspan(first_rows), ignore);
}

template <class Word>
Status find_shuffled_starts(std::span<const Word> lengths,
                            const ShuffleRule& rule, Parts& parts,
                            std::span<RowStart<Word>> starts) {
  if (starts.empty()) return {};
  bool is_changed = false;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto part = parts.spans[i];
    const std::size_t first = i == 0 ? 0 : parts.spans[0].size();
    BackwardStarts<Word> found(lengths, rule, parts.tokens[i],
                               parts.tokens[i + 1], starts);
    for (std::size_t left = part.size(); left > 0;) {
      const std::size_t moving =
          parts.moving[i].load(std::memory_order_acquire);
      if (moving == left) {
        parts.moving[i].wait(moving, std::memory_order_acquire);
        continue;
      }
      found.add(part.subspan(moving, left - moving), first + moving);
      left = moving;
    }
    is_changed |= found.finish() != parts.tokens[i];
  }
  if (is_changed) return changed_lengths();
  starts[0] = {0, 0};
  return {};
}

// Megatron computes the number of rows in 32-bit floating point numbers if the
// last row may be incomplete.  Rows beyond the last token start at its end.
template <class Word>
void add_rows_beyond(std::span<const Word> lengths, const ShuffleRule& rule,
                     std::span<const std::uint32_t> documents,
                     std::span<RowStart<Word>> starts) {
  const std::int64_t extra = rule.has_extra_token ? 1 : 0;
  const std::int64_t end = rule.tokens * static_cast<std::int64_t>(rule.epochs);
  const std::int64_t first =
      end < extra ? 1 : (end - extra) / rule.row_tokens + 1;
  for (auto row = static_cast<std::size_t>(first); row < starts.size(); ++row) {
    const auto length = static_cast<std::int64_t>(lengths[documents.back()]);
    starts[row] = {
        static_cast<Word>(documents.size() - 1),
        static_cast<Word>(std::max<std::int64_t>(length - extra, 0))};
  }
}

template <class Word>
std::span<RowStart<Word>> starts_in(std::span<std::byte> bytes) {
  return {reinterpret_cast<RowStart<Word>*>(bytes.data()),
          bytes.size() / sizeof(RowStart<Word>)};
}

template <class Word>
Status build_shuffled_as(const DocumentLengths& lengths,
                         const ShuffleRule& rule, const RowArrays& to) {
  // Random reads of a mapped file take three times as long as those of memory
  // with huge pages.
  OwnMemory memory;
  const auto size = static_cast<std::size_t>(lengths.size());
  const std::size_t bytes = size * sizeof(Word);
  if (!memory.resize(bytes)) return no_memory_for("lengths, ", bytes, " bytes");
  const std::span copy(reinterpret_cast<Word*>(memory.data()), size);
  Parts parts(rule, to.documents);
  const auto starts = starts_in<Word>(to.starts);
  RandomState random(rule.seed);
  Pool pool(1);
  TaskGroup group;
  pool.run(group, [&] { shuffle_documents(random, size, parts); });
  // This thread has nothing else to do until the first documents are final.  It
  // also allocates the pages of the starts.
  std::iota(to.order.begin(), to.order.end(), 0U);
  std::ranges::fill(to.starts, std::byte{});
  pool.run(group, [&] { shuffle_rows(random, rule.first_rows, to.order); });
  lengths.visit([&](const auto& all) { std::ranges::copy(all, copy.begin()); });
  // If the pool could not start a thread, both shuffles are complete here.
  const Status status = find_shuffled_starts<Word>(copy, rule, parts, starts);
  static_cast<void>(group.wait());
  TRY(status);
  if (!to.documents.empty()) {
    add_rows_beyond<Word>(copy, rule, to.documents, starts);
  }
  return {};
}

template <class Length, class Word>
Status build_chunked_as(std::span<const Length> lengths, const ChunkRule& rule,
                        std::span<RowStart<Word>> starts) {
  std::size_t position = 0;
  std::size_t row = 0;
  for (const ChunkRule::Part& part : rule.parts) {
    const std::size_t end = row + part.rows;
    const std::size_t last = position + part.documents;
    std::int64_t token = 0;
    std::int64_t next = 0;  // The first token of the next row.
    for (; position < last; ++position) {
      const std::int64_t length = lengths[position];
      for (; next < token + length && row < end; ++row) {
        starts[row] = {static_cast<Word>(position),
                       static_cast<Word>(next - token)};
        next += rule.row_tokens;
      }
      token += length;
    }
    if (row != end) return changed_lengths();
  }
  return {};
}

}  // namespace

Status build_chunked(const DocumentLengths& lengths, const ChunkRule& rule,
                     bool is_wide, const RowArrays& to) {
  return lengths.visit([&](const auto& all) {
    return is_wide ? build_chunked_as(all, rule,
                                      starts_in<std::uint64_t>(to.starts))
                   : build_chunked_as(all, rule,
                                      starts_in<std::uint32_t>(to.starts));
  });
}

Status build_shuffled(const DocumentLengths& lengths, const ShuffleRule& rule,
                      bool is_wide, const RowArrays& to) {
  return is_wide ? build_shuffled_as<std::uint64_t>(lengths, rule, to)
                 : build_shuffled_as<std::uint32_t>(lengths, rule, to);
}

}  // namespace gristmill
