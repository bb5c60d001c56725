#include "core/tokens/document_lengths.hpp"

#include <algorithm>

#include "core/base/highway_hash.hpp"

namespace gristmill {
namespace {

constexpr HighwayHash::Key kLengthsKey{0x316e656c, 0, 0, 0};  // "len1"
// Lengths that stay in the cache between hashing and adding them.
constexpr std::size_t kLengthsAtOnce = 8192;
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 62;

template <class Value>
Result<LengthSummary> summarize_all(
    std::span<const LengthBytes<Value>> lengths) {
  HighwayHash hash(kLengthsKey);
  LengthSummary all;
  for (std::size_t begin = 0; begin < lengths.size(); begin += kLengthsAtOnce) {
    const auto some = lengths.subspan(
        begin, std::min(kLengthsAtOnce, lengths.size() - begin));
    hash.append(std::as_bytes(some));
    Value shortest = 0;
    Value longest = 0;
    // Unsigned, because a sum of damaged lengths may overflow.
    std::uint64_t tokens = 0;
    for (const Value length : some) {
      shortest = std::min(shortest, length);
      longest = std::max(longest, length);
      tokens += static_cast<std::uint64_t>(length);
    }
    if (shortest < 0) {
      const auto bad = std::find_if(some.begin(), some.end(),
                                    [](Value length) { return length < 0; });
      return Status(Code::kInvalidArgument, "lengths must be >= 0, got ",
                    Value{*bad}, " for document ",
                    begin + static_cast<std::size_t>(bad - some.begin()));
    }
    all.longest = std::max<std::int64_t>(all.longest, longest);
    if (longest > kMaxTokens / static_cast<std::int64_t>(kLengthsAtOnce) ||
        all.tokens + static_cast<std::int64_t>(tokens) >= kMaxTokens) {
      return Status(Code::kInvalidArgument,
                    "the documents must have less than 2**62 tokens in all");
    }
    all.tokens += static_cast<std::int64_t>(tokens);
  }
  all.hash = hash.value();
  return all;
}

}  // namespace

Result<LengthSummary> summarize(const DocumentLengths& lengths) {
  return std::visit([](const auto& all) { return summarize_all(all); },
                    lengths);
}

}  // namespace gristmill
