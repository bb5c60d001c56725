// A FileReader is a RecordReader of one file.  It reads records that lie near
// each other with one read of the file.
//
// Thread safety: const methods may overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/base/byte_buffer.hpp"
#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/record_reader.hpp"

namespace gristmill {

// Bytes of a file and their offset.
struct RawBytes {
  std::uint64_t begin = 0;  // Offset in the file.
  std::span<const std::byte> bytes;

  [[nodiscard]] std::uint64_t end() const { return begin + bytes.size(); }

  // Returns the bytes from file offset `offset` on, which must lie among them.
  [[nodiscard]] RawBytes from(std::uint64_t offset) const {
    return {offset, bytes.subspan(static_cast<std::size_t>(offset - begin))};
  }
};

// Adds the path of the file, and any change of the file, to an error.
Status add_file_context(const File& file, const Status& status);

class FileReader : public RecordReader {
 public:
  // Provides bytes of a file that this thread already has.  During its
  // lifetime, this thread does not read them from the file again.
  class PrefetchedBytes {
   public:
    PrefetchedBytes(const FileReader& reader, const RawBytes& bytes);
    ~PrefetchedBytes();
    PrefetchedBytes(const PrefetchedBytes&) = delete;
    PrefetchedBytes& operator=(const PrefetchedBytes&) = delete;
  };

  [[nodiscard]] const std::string& path() const override {
    return file_->path();
  }
  [[nodiscard]] std::size_t parallel() const override {
    return file_->hints().parallel;
  }

  // Returns true if one read of a file with a high latency covers both records.
  [[nodiscard]] bool shares_work(std::int64_t left,
                                 std::int64_t right) const override;

  [[nodiscard]] bool fetches() const override {
    return file_->fetcher() != nullptr;
  }
  Status add_runs(std::span<const Request> requests,
                  std::vector<Run>& runs) const override;

  [[nodiscard]] const File& file() const { return *file_; }

  // Adds the record and the path of the file to an error.
  [[nodiscard]] Status add_record_context(const Status& status,
                                          std::int64_t record) const;

 protected:
  // A range of offsets in the file.
  struct Extent {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  // Extracts a record from bytes that include its extent.  Its errors name the
  // record.
  using Deliver = std::function<Status(const Request&, const RawBytes&)>;

  explicit FileReader(std::shared_ptr<const File> file)
      : file_(std::move(file)) {}

  // Estimates the extent of a record.
  [[nodiscard]] virtual Extent extent(std::int64_t record) const = 0;

  // Returns true if reading a record needs no bytes of the file.
  [[nodiscard]] virtual bool is_cached(std::int64_t /*record*/) const {
    return false;
  }

  // Returns the name that errors use for a record.
  [[nodiscard]] virtual std::string describe(std::int64_t record) const = 0;

  // Reads runs of neighboring records one after the other, and calls `deliver`
  // for each record.
  Status read_runs(std::span<const Request> requests,
                   const Deliver& deliver) const;

  // Returns the file, so that another object can keep it open.
  [[nodiscard]] std::shared_ptr<const File> share_file() const { return file_; }

  // Returns the bytes of an extent, either mapped or read to `buffer`.
  Result<RawBytes> fetch(const Extent& extent, ByteBuffer& buffer) const;

  // Fails if the file is mapped and has become shorter.  Accessing pages beyond
  // its end would kill the process.
  [[nodiscard]] Status check_mapped() const;

 private:
  // Returns the number of `requests` that the next read of the file covers, and
  // the extent of that read.
  std::pair<std::size_t, Extent> next_run(
      std::span<const Request> requests) const;
  Status read_run(std::span<const Request> requests, const Extent& extent,
                  const Deliver& deliver) const;

  const std::shared_ptr<const File> file_;
};

}  // namespace gristmill
