#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/check.hpp"
#include "core/files/spread_read.hpp"

namespace gristmill {
namespace {

using Request = RecordReader::Request;

// Record i is the number i.  Records with the same quotient by 10 share work.
class Numbers final : public RecordReader {
 public:
  explicit Numbers(std::size_t parallel) : parallel_(parallel) {}

  [[nodiscard]] const std::string& path() const override { return path_; }
  [[nodiscard]] std::uint64_t size() const override { return 1000; }
  [[nodiscard]] bool knows_sizes() const override { return true; }
  [[nodiscard]] std::size_t parallel() const override { return parallel_; }
  [[nodiscard]] bool shares_work(std::int64_t left,
                                 std::int64_t right) const override {
    return left / 10 == right / 10;
  }
  Status sizes(std::span<const Request>,
               std::span<std::int64_t> sizes) const override {
    std::ranges::fill(sizes, sizeof(std::int64_t));
    return {};
  }
  Status read(std::span<const Request> requests, Sink& sink) const override {
    {
      const std::lock_guard lock(mutex);
      cuts.push_back(requests.size());
    }
    for (const Request& request : requests) {
      if (bad.contains(request.record)) {
        return Status(Code::kInvalidArgument, std::to_string(request.record));
      }
      auto to = sink.place(request.slot, sizeof request.record);
      if (!to.ok()) return to.status();
      std::memcpy(to.value().data(), &request.record, sizeof request.record);
    }
    return {};
  }

  std::set<std::int64_t> bad;
  mutable std::mutex mutex;
  mutable std::vector<std::size_t>
      cuts;  // Their sizes, in the order in which they are read.

 private:
  const std::string path_ = "numbers";
  const std::size_t parallel_;
};

struct Kept final : RecordReader::Sink {
  explicit Kept(std::size_t count) : values(count, -1) {}
  Result<std::span<std::byte>> place(std::size_t slot, std::uint64_t) override {
    return std::as_writable_bytes(std::span(&values[slot], 1));
  }
  std::vector<std::int64_t> values;
};

std::vector<std::int64_t> every(std::int64_t step, std::size_t count) {
  std::vector<std::int64_t> records(count);
  for (std::size_t i = 0; i < count; ++i) {
    records[i] = static_cast<std::int64_t>(i) * step;
  }
  return records;
}

void test_every_record_is_read_once(std::size_t threads, std::size_t parallel) {
  Pool pool(threads);
  const Numbers numbers(parallel);
  for (const std::size_t count : {0u, 1u, 2u, 7u, 500u}) {
    const auto records = every(2, count);
    const auto requests = numbers.plan(records).value();
    Kept kept(count);
    SpreadRead read(pool, threads, numbers, requests, kept);
    CHECK(read.wait());
    CHECK(read.status().ok());
    CHECK(kept.values == records);
  }
}

void test_local_reads_have_one_part_per_thread() {
  Pool pool(4);
  const Numbers numbers(1);
  const auto requests = numbers.plan(every(10, 100)).value();
  Kept kept(100);
  SpreadRead read(pool, 4, numbers, requests, kept);
  CHECK(read.wait());
  CHECK(numbers.cuts == std::vector<std::size_t>(4, 25));
}

void test_remote_reads_are_cut_between_chunks() {
  Pool pool(4);
  const Numbers numbers(4);
  const auto requests = numbers.plan(every(5, 100)).value();
  Kept kept(100);
  SpreadRead read(pool, 4, numbers, requests, kept);
  CHECK(read.wait());
  CHECK(numbers.cuts == std::vector<std::size_t>(50, 2));
}

void test_first_error_is_returned(std::size_t threads) {
  Pool pool(threads);
  Numbers numbers(threads);
  numbers.bad = {330, 340, 900};
  const auto requests = numbers.plan(every(10, 100)).value();
  for (int i = 0; i < 200; ++i) {
    Kept kept(100);
    SpreadRead read(pool, threads, numbers, requests, kept);
    CHECK(read.wait());
    CHECK_EQ(read.status().message(), "330");
    for (std::size_t k = 0; k < 33; ++k) {
      CHECK_EQ(kept.values[k], static_cast<std::int64_t>(k) * 10);
    }
  }
}

void test_parts_after_error_are_skipped() {
  Pool pool(1);
  Numbers numbers(2);
  numbers.bad = {30};
  const auto requests = numbers.plan(every(10, 100)).value();
  Kept kept(100);
  SpreadRead read(pool, 1, numbers, requests, kept);
  CHECK(read.wait());
  CHECK_EQ(numbers.cuts.size(), 4u);
}

void test_threads_keep_reader_alive() {
  struct Work {
    Work(Pool& pool, TaskGroup& gate)
        : numbers(2), requests(numbers.plan(every(1, 3)).value()), kept(3) {
      pool.run(held, [&gate] { CHECK(gate.wait()); });
    }
    Numbers numbers;
    std::vector<Request> requests;
    Kept kept;
    TaskGroup held;
    std::optional<SpreadRead> read;
  };
  Pool pool(1);
  TaskGroup gate;
  gate.expect(1);
  auto work = std::make_shared<Work>(pool, gate);
  const std::weak_ptr<Work> watched = work;
  work->read.emplace(pool, 1, work->numbers, work->requests, work->kept, work);
  CHECK(!work->read->wait_for(std::chrono::milliseconds(1)).has_value());
  work->read->stop();
  work.reset();
  CHECK(!watched.expired());
  gate.done();
  TaskGroup later;
  pool.run(later, [] {});
  CHECK(later.wait());
  CHECK(watched.expired());
}

void test_forked_child_wait_returns_false() {
  Pool pool(1);
  TaskGroup gate;
  TaskGroup held;
  gate.expect(1);
  pool.run(held, [&gate] { CHECK(gate.wait()); });
  const Numbers numbers(1);
  const auto requests = numbers.plan(every(1, 3)).value();
  Kept kept(3);
  SpreadRead read(pool, 1, numbers, requests, kept);
  const pid_t child = fork();
  if (child == 0) _exit(read.wait() ? 1 : 0);
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  gate.done();
  CHECK(read.wait());
  CHECK(kept.values == every(1, 3));
}

}  // namespace
}  // namespace gristmill

int main() {
  using namespace gristmill;
  test_forked_child_wait_returns_false();
  for (const std::size_t threads : {1u, 3u, 16u}) {
    test_every_record_is_read_once(threads, 1);
    test_every_record_is_read_once(threads, threads + 1);
    test_first_error_is_returned(threads);
  }
  test_threads_keep_reader_alive();
  test_local_reads_have_one_part_per_thread();
  test_remote_reads_are_cut_between_chunks();
  test_parts_after_error_are_skipped();
}
