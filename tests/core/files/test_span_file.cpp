// A SpanFile reads records or slices of them, or maps them.
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/check.hpp"
#include "core/files/local_file.hpp"
#include "core/files/record_set.hpp"
#include "core/files/span_file.hpp"
#include "core/kept_record.hpp"

namespace {

using gristmill::Code;
using gristmill::File;
using gristmill::KeptRecord;
using gristmill::LocalFile;
using gristmill::RecordReader;
using gristmill::RecordSet;
using gristmill::SpanFile;
using gristmill::SpanIndex;

using Access = LocalFile::Access;
using Slices = std::vector<RecordReader::Slice>;

class FixedIndex final : public SpanIndex {
 public:
  explicit FixedIndex(std::vector<Span> spans) : spans_(std::move(spans)) {}
  std::uint64_t size() const override { return spans_.size(); }
  Span at(std::uint64_t i) const override { return spans_[i]; }
  const std::string& path() const override { return path_; }

 private:
  const std::vector<Span> spans_;
  const std::string path_ = "index";
};

// A file in memory.  Its path is valid while the object lives.
class Letters {
 public:
  explicit Letters(std::string_view text) : fd_(memfd_create("letters", 0)) {
    CHECK_EQ(pwrite(fd_, text.data(), text.size(), 0),
             static_cast<ssize_t>(text.size()));
  }
  ~Letters() { close(fd_); }
  Letters(const Letters&) = delete;
  Letters& operator=(const Letters&) = delete;

  [[nodiscard]] std::shared_ptr<const SpanFile> open(
      Access access, std::vector<SpanIndex::Span> spans) const {
    auto file = LocalFile::open("/proc/self/fd/" + std::to_string(fd_), access);
    CHECK(file.ok());
    return std::make_shared<SpanFile>(
        std::move(file).value(), std::make_shared<FixedIndex>(std::move(spans)),
        "letter");
  }

 private:
  const int fd_;
};

std::string read(const RecordReader& reader, std::int64_t record) {
  const RecordReader::Request request{record, 0};
  KeptRecord kept;
  const auto status = reader.read(std::span(&request, 1), kept);
  CHECK_EQ(status.message(), "");
  return {reinterpret_cast<const char*>(kept.record.data()),
          kept.record.size()};
}

void test_slices_of_parts_have_their_items() {
  const Letters first("0123456789");
  const Letters second("abcdef");
  for (const Access access : {Access::kPread, Access::kMmap}) {
    RecordSet set("set", std::vector<RecordSet::Range>{{0, 2}, {1, 1}});
    CHECK(set.open_part(0, first.open(access, {{0, 4}, {4, 10}})).ok());
    CHECK(set.open_part(1, second.open(access, {{0, 2}, {2, 6}})).ok());
    const Slices slices{{0, 1, 2}, {1, 0, 3}, {1, 3, 3}, {2, 0, 1}};
    auto sliced = set.slices(slices, 2);
    CHECK(sliced.ok());
    CHECK_EQ(sliced.value()->size(), 4u);
    CHECK_EQ(read(*sliced.value(), 0), "23");
    CHECK_EQ(read(*sliced.value(), 1), "456789");
    CHECK_EQ(read(*sliced.value(), 2), "");
    CHECK_EQ(read(*sliced.value(), 3), "cd");
  }
}

void test_slice_outside_of_its_record_is_an_error() {
  const Letters letters("0123456789");
  const auto file = letters.open(Access::kPread, {{0, 4}, {4, 9}});
  for (const auto& [begin, end] :
       {std::pair<std::int64_t, std::int64_t>{0, 3}, {2, 1}, {-1, 0}}) {
    const Slices slices{{1, begin, end}};
    const auto status = file->slices(slices, 2).status();
    CHECK(status.code() == Code::kOutOfRange);
    CHECK(status.message().find(
              "letter 1 at offset 4: expected a range of its 2 items, got ") !=
          std::string::npos);
  }
}

void test_errors_of_slices_name_the_record() {
  const Letters letters("0123456789");
  const auto file = letters.open(Access::kPread, {{0, 4}, {4, 10}});
  const auto whole = file->slices(Slices{{1, 1, 6}}, 1).value();
  const auto part = whole->slices(Slices{{0, 9, 9}}, 1);
  CHECK(part.status().message().find("letter 1 at offset 5") !=
        std::string::npos);
  CHECK_EQ(read(*whole->slices(Slices{{0, 1, 3}}, 1).value(), 0), "67");
}

void test_views_outlive_the_reader() {
  const Letters letters("0123456789");
  auto file = letters.open(Access::kMmap, {{0, 4}, {4, 10}});
  CHECK(file->has_views());
  const RecordReader::Request request{1, 0};
  RecordReader::View view;
  CHECK(file->views(std::span(&request, 1), std::span(&view, 1)).ok());
  file.reset();
  CHECK_EQ(std::string(reinterpret_cast<const char*>(view.bytes.data()),
                       view.bytes.size()),
           "456789");
  CHECK(!letters.open(Access::kPread, {})->has_views());
}

void test_lengths_check_the_index() {
  const Letters letters("0123456789");
  std::vector<std::int64_t> lengths(2);
  const auto file = letters.open(Access::kPread, {{0, 4}, {4, 10}});
  CHECK(file->lengths(2, 0, lengths).ok());
  CHECK(lengths == (std::vector<std::int64_t>{2, 3}));
  CHECK(file->lengths(2, 1, std::span(lengths).first(1)).ok());
  CHECK_EQ(lengths[0], 3);
  const auto damaged = letters.open(Access::kPread, {{0, 4}, {4, 11}});
  CHECK(
      damaged->lengths(2, 0, lengths).message().find("letter 1 at offset 4") !=
      std::string::npos);
}

}  // namespace

int main() {
  test_slices_of_parts_have_their_items();
  test_slice_outside_of_its_record_is_an_error();
  test_errors_of_slices_name_the_record();
  test_views_outlive_the_reader();
  test_lengths_check_the_index();
}
