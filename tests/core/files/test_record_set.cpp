// A RecordSet has the records of its parts, one part after another.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/check.hpp"
#include "core/files/record_set.hpp"

namespace {

using gristmill::Code;
using gristmill::RecordReader;
using gristmill::RecordSet;
using gristmill::Result;
using gristmill::Status;

// Records of `size` letters.  Two records share work if their numbers divided
// by `group` have the same quotient.
class Letters final : public RecordReader {
 public:
  Letters(char letter, std::uint64_t count, std::int64_t group = 1)
      : name_(1, letter), count_(count), group_(group) {}

  const std::string& path() const override { return name_; }
  std::uint64_t size() const override { return count_; }
  bool knows_sizes() const override { return group_ == 1; }
  bool shares_work(std::int64_t left, std::int64_t right) const override {
    return left / group_ == right / group_;
  }
  Status sizes(std::span<const Request> requests,
               std::span<std::int64_t> sizes) const override {
    for (const auto& request : requests) sizes[request.slot] = request.record;
    return {};
  }
  Status read(std::span<const Request> requests, Sink& sink) const override {
    for (const Request& request : requests) {
      if (request.record == bad) {
        return Status(Code::kInvalidArgument, name_ + ": bad");
      }
      auto to =
          sink.place(request.slot, static_cast<std::uint64_t>(request.record));
      if (!to.ok()) return to.status();
      std::memset(to.value().data(), name_[0], to.value().size());
    }
    return {};
  }

  std::int64_t bad = -1;

 private:
  const std::string name_;
  const std::uint64_t count_;
  const std::int64_t group_;
};

struct Kept final : RecordReader::Sink {
  explicit Kept(std::size_t count) : records(count) {}
  Result<std::span<std::byte>> place(std::size_t slot,
                                     std::uint64_t size) override {
    records[slot].resize(size);
    return std::as_writable_bytes(std::span(records[slot]));
  }
  std::vector<std::string> records;
};

const std::vector<RecordSet::Range> kRanges = {{2, 3}, {0, 0}, {0, 2}, {5, 1}};

void open_all(RecordSet& set) {
  CHECK(set.open_part(0, std::make_shared<Letters>('a', 5)).ok());
  CHECK(set.open_part(1, std::make_shared<Letters>('b', 0)).ok());
  CHECK(set.open_part(2, std::make_shared<Letters>('c', 2)).ok());
  CHECK(set.open_part(3, std::make_shared<Letters>('d', 6, 4)).ok());
}

std::vector<std::string> read(const RecordSet& set,
                              const std::vector<std::int64_t>& records) {
  auto requests = set.plan(records);
  CHECK(requests.ok());
  Kept kept(records.size());
  CHECK(set.read(requests.value(), kept).ok());
  return kept.records;
}

void test_records_are_in_order_of_parts() {
  RecordSet set("set", kRanges);
  open_all(set);
  CHECK_EQ(set.size(), 6u);
  const auto all = read(set, {5, 4, 3, 2, 1, 0, 4});
  const std::vector<std::string> expected = {"ddddd", "c",  "", "aaaa",
                                             "aaa",   "aa", "c"};
  CHECK(all == expected);
}

void test_sizes_are_those_of_parts() {
  RecordSet set("set", kRanges);
  open_all(set);
  const std::vector<std::int64_t> records = {0, 5, 3};
  std::vector<std::int64_t> sizes(3);
  CHECK(set.sizes(set.plan(records).value(), sizes).ok());
  CHECK(sizes == (std::vector<std::int64_t>{2, 5, 0}));
  CHECK(!set.knows_sizes());
}

void test_closed_parts_lists_only_needed_ones() {
  RecordSet set("set", kRanges);
  const std::vector<std::int64_t> records = {0, 2, 5};
  auto plan = set.plan(records);
  CHECK(set.closed_parts(plan.value()) == (std::vector<std::size_t>{0, 3}));
  CHECK(set.open_part(0, std::make_shared<Letters>('a', 5)).ok());
  CHECK(set.closed_parts(plan.value()) == (std::vector<std::size_t>{3}));
  set.close_parts();
  CHECK(set.closed_parts(plan.value()) == (std::vector<std::size_t>{0, 3}));
  Kept kept(3);
  const Status status = set.read(plan.value(), kept);
  CHECK_EQ(status.message(), "set: it was closed while it was read");
}

void test_reader_smaller_than_range_is_error() {
  RecordSet set("set", kRanges);
  const Status status = set.open_part(0, std::make_shared<Letters>('a', 4));
  CHECK(status.code() == Code::kOutOfRange);
  CHECK_EQ(status.message(), "a: expected records 2 to 5, found 4 records");
}

void test_error_names_its_part() {
  RecordSet set("set", kRanges);
  auto bad = std::make_shared<Letters>('c', 2);
  bad->bad = 1;
  open_all(set);
  set.close_parts();
  CHECK(set.open_part(2, bad).ok());
  const std::vector<std::int64_t> records = {3, 4};
  auto plan = set.plan(records);
  Kept kept(2);
  CHECK_EQ(set.read(plan.value(), kept).message(), "c: bad");
}

void test_cuts_share_no_work() {
  RecordSet set("set", std::vector<RecordSet::Range>{{0, 8}, {0, 8}});
  CHECK(set.open_part(0, std::make_shared<Letters>('a', 8, 4)).ok());
  CHECK(set.open_part(1, std::make_shared<Letters>('b', 8, 8)).ok());
  std::vector<std::int64_t> records(16);
  for (std::size_t i = 0; i < 16; ++i) records[i] = static_cast<int>(i);
  auto plan = set.plan(records);
  std::vector<std::size_t> lengths;
  for (const auto cut : set.cut(plan.value(), 5)) lengths.push_back(cut.size());
  CHECK(lengths == (std::vector<std::size_t>{4, 4, 8}));
}

// A forked child does not need the lock of a thread that is closing the set.
void test_forked_child_reads_during_close() {
  RecordSet set("set", kRanges);
  open_all(set);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!stop) CHECK_EQ(read(set, {0, 4})[0], "aa");
    });
  }
  for (int i = 0; i < 100; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      _exit(read(set, {5})[0] == "ddddd" ? 0 : 1);
    }
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  stop = true;
  for (auto& thread : threads) thread.join();
}

void test_threads_open_read_and_close() {
  RecordSet set("set", kRanges);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        open_all(set);
        if (t == 0) set.close_parts();
        const std::vector<std::int64_t> records = {0, 4};
        auto plan = set.plan(records);
        Kept kept(2);
        if (set.read(plan.value(), kept).ok()) CHECK_EQ(kept.records[0], "aa");
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace

int main() {
  test_records_are_in_order_of_parts();
  test_sizes_are_those_of_parts();
  test_closed_parts_lists_only_needed_ones();
  test_reader_smaller_than_range_is_error();
  test_error_names_its_part();
  test_cuts_share_no_work();
  test_threads_open_read_and_close();
  test_forked_child_reads_during_close();
}
