#include "core/tokens/document_index.hpp"

#include <array>
#include <type_traits>
#include <utility>

#include "core/base/highway_hash.hpp"
#include "core/base/varint.hpp"
#include "core/files/file_scan.hpp"
#include "core/files/shared_index.hpp"
#include "core/files/verify.hpp"

namespace gristmill {
namespace {

// The key of the hash that an index stores in place of a footer's hash.
constexpr HighwayHash::Key kKey{0x31636f64, 0, 0, 0};  // "doc1"

std::uint64_t hash_of(const DocumentRule& rule) {
  const std::array<std::uint64_t, 5> fields{rule.begin, rule.width, rule.eos,
                                            std::uint64_t{rule.bos.has_value()},
                                            rule.bos.value_or(0)};
  return HighwayHash::of(kKey, std::as_bytes(std::span(fields)));
}

// Collects the documents of a file from its consecutive windows.  Its tokens
// are of type Token.
template <class Token>
class DocumentCollector {
 public:
  explicit DocumentCollector(const DocumentRule& rule)
      : eos_(static_cast<Token>(rule.eos)), rule_(rule), begin_(rule.begin) {}

  // `at` is the offset of the window in the file.
  void add_window(std::uint64_t at, std::span<const std::byte> window) {
    for (std::size_t i = 0; i < window.size(); i += sizeof(Token)) {
      const auto token = load_le<Token>(window.data() + i);
      // `at + i` is the offset after the previous token.
      if (after_eos_ && token == static_cast<Token>(*rule_.bos)) {
        end_document(at + i);
      }
      after_eos_ = false;
      if (token != eos_) continue;
      if (rule_.bos) {
        after_eos_ = true;
      } else {
        end_document(at + i + sizeof(Token));
      }
    }
  }

  // Returns the documents of the file, which has `file_size` bytes.
  PackedChunks finish(std::uint64_t file_size) {
    if (begin_ < file_size) end_document(file_size);
    documents_.finish(file_size);
    return std::move(documents_);
  }

 private:
  void end_document(std::uint64_t end) {
    documents_.add(begin_, end - begin_);
    begin_ = end;
  }

  const Token eos_;
  const DocumentRule& rule_;
  PackedChunks documents_;
  std::uint64_t begin_;     // The offset of the current document.
  bool after_eos_ = false;  // The last token was eos, and bos may follow.
};

template <class Token>
Result<PackedChunks> scan(const File& file, const DocumentRule& rule,
                          ScanProgress& progress) {
  DocumentCollector<Token> documents(rule);
  TRY(scan_file(file, rule.begin, progress, [&](std::uint64_t at, auto window) {
    documents.add_window(at, window);
    return Status();
  }));
  return documents.finish(file.size());
}

Result<PackedChunks> scan(const File& file, const DocumentRule& rule,
                          ScanProgress& progress) {
  switch (rule.width) {
    case 1:
      return scan<std::uint8_t>(file, rule, progress);
    case 2:
      return scan<std::uint16_t>(file, rule, progress);
    case 4:
      return scan<std::uint32_t>(file, rule, progress);
    default:
      return scan<std::uint64_t>(file, rule, progress);
  }
}

}  // namespace

Result<std::unique_ptr<const SpanIndex>> document_index(
    const File& file, const DocumentRule& rule,
    std::span<const std::string> index_paths, ScanProgress& progress) {
  if (rule.begin > file.size() ||
      (file.size() - rule.begin) % rule.width != 0) {
    return damaged("the file has ", file.size(), " bytes, expected ",
                   rule.begin, " and a multiple of ", rule.width,
                   ": it was cut off, or has another dtype");
  }
  const std::uint64_t hash = hash_of(rule);
  auto [records, path] = TRY(load_or_scan_places(
      file, hash, index_paths, [&] { return scan(file, rule, progress); }));
  return std::unique_ptr<const SpanIndex>(std::make_unique<ScannedIndex>(
      std::move(records), std::move(path), hash));
}

}  // namespace gristmill
