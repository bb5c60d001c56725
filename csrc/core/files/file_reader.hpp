// A FileReader is a RecordReader of one file, by one read of the file for
// records that lie near each other.
//
// Thread safety: const methods may overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "core/base/byte_buffer.hpp"
#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/record_reader.hpp"

namespace gristmill {

// Bytes of a file.
struct RawBytes {
  std::uint64_t begin = 0;  // Their offset in the file.
  std::span<const std::byte> bytes;

  [[nodiscard]] std::uint64_t end() const { return begin + bytes.size(); }

  // Those from `offset` on, which lies among them.
  [[nodiscard]] RawBytes from(std::uint64_t offset) const {
    return {offset, bytes.subspan(static_cast<std::size_t>(offset - begin))};
  }
};

// Adds to a message which file it is about, and how that has changed.
Status name_file(const File& file, const Status& status);

class FileReader : public RecordReader {
 public:
  // Bytes of a file that this thread has at hand, for as long as this lives:
  // what lies among them is not read again.
  class AtHand {
   public:
    AtHand(const FileReader& reader, const RawBytes& bytes);
    ~AtHand();
    AtHand(const AtHand&) = delete;
    AtHand& operator=(const AtHand&) = delete;
  };

  [[nodiscard]] const std::string& path() const override {
    return file_->path();
  }
  [[nodiscard]] std::size_t parallel() const override {
    return file_->hints().parallel;
  }

  // True if both lie where one read of a file that is far away reaches.
  [[nodiscard]] bool shares_work(std::int64_t left,
                                 std::int64_t right) const override;

  [[nodiscard]] bool fetches() const override {
    return file_->fetcher() != nullptr;
  }
  Status add_runs(std::span<const Request> requests,
                  std::vector<Run>& runs) const override;

  [[nodiscard]] const File& file() const { return *file_; }

  // Adds to an error which record of which file it is about.
  [[nodiscard]] Status explain(const Status& status, std::int64_t record) const;

 protected:
  // Where something begins and ends in the file.
  struct Extent {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  // Takes a record out of bytes of the file that its extent lies in.  Its
  // errors name the record.
  using Deliver = std::function<Status(const Request&, const RawBytes&)>;

  explicit FileReader(File::Ptr file) : file_(std::move(file)) {}

  // Where a record lies, at a guess.
  [[nodiscard]] virtual Extent extent(std::int64_t record) const = 0;

  // True if reading a record needs no bytes of the file.
  [[nodiscard]] virtual bool is_kept(std::int64_t /*record*/) const {
    return false;
  }

  // What errors call a record.
  [[nodiscard]] virtual std::string describe(std::int64_t record) const = 0;

  // Reads records one run of neighbours after the other, for deliver().
  Status read_runs(std::span<const Request> requests,
                   const Deliver& deliver) const;

  // Returns the bytes of an extent: mapped ones, or read to `buffer`.
  Result<RawBytes> fetch(const Extent& extent, ByteBuffer& buffer) const;

  // Fails if the file is mapped and has become shorter: touching what is no
  // longer there would end the process.
  [[nodiscard]] Status check_mapped() const;

 private:
  // How many of `requests` one read of the file gets, and its extent.
  std::pair<std::size_t, Extent> next_run(
      std::span<const Request> requests) const;
  Status read_run(std::span<const Request> requests, const Extent& extent,
                  const Deliver& deliver) const;

  const File::Ptr file_;
};

}  // namespace gristmill
