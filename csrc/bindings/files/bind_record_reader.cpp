// Binds core/files/record_reader.hpp: makes bytes or checks arrays, drops the GIL,
// reads.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>

#include "bindings/files/python_file.hpp"
#include "bindings/files/record_reader.hpp"
#include "bindings/with_python.hpp"
#include "core/base/byte_buffer.hpp"
#include "core/base/pool.hpp"
#include "core/files/spread_read.hpp"

namespace gristmill::bind {
namespace {

using Request = RecordReader::Request;

// How often a thread that waits for something far away looks for signals.
constexpr std::chrono::milliseconds kSignalPeriod{100};

// Raised for a file that is not as it should be; set when the module starts
// and alive as long as the process.
PyObject* corrupt_record = nullptr;

std::span<const std::int64_t> span_of(const Records& records) {
  if (records.ndim() != 1) {
    throw py::value_error("records must have one dimension");
  }
  return {records.data(), static_cast<std::size_t>(records.size())};
}

// Other threads may write to the array as soon as the GIL is given up.
std::vector<std::int64_t> copy_of(const Records& records) {
  const auto keys = span_of(records);
  return {keys.begin(), keys.end()};
}

py::ssize_t to_ssize(std::size_t value) {
  return static_cast<py::ssize_t>(value);
}

// Returns a new reference.
PyObject* new_bytes(std::int64_t size) {
  PyObject* const bytes =
      PyBytes_FromStringAndSize(nullptr, static_cast<py::ssize_t>(size));
  if (bytes == nullptr) throw py::error_already_set();
  return bytes;
}

std::span<std::byte> contents(PyObject* bytes) {
  return {reinterpret_cast<std::byte*>(PyBytes_AS_STRING(bytes)),
          static_cast<std::size_t>(PyBytes_GET_SIZE(bytes))};
}

std::vector<std::int64_t> sizes_of(const RecordReader& reader,
                                   std::span<const std::int64_t> records) {
  std::vector<std::int64_t> sizes(records.size());
  check_file([&] {
    const Unlocked unlocked;
    return reader.sizes(records, sizes);
  }());
  return sizes;
}

// Where records go: a Sink of which the Python side is made beforehand or
// afterwards, with the GIL, and which is written to without.
struct Target : RecordReader::Sink {
  // Returns what the caller gets.  REQUIRES: the GIL is held; all was read.
  virtual py::object take() = 0;

  // True if what is written to belongs to the target alone.
  [[nodiscard]] virtual bool owns_memory() const { return true; }

  // True if a record did not fit: then it is not the file that is wrong.
  [[nodiscard]] virtual bool refused() const { return false; }

  // Raises what a failed read stands for.  REQUIRES: the GIL is held.
  void check_read(const Status& status) const {
    refused() ? check(status) : check_file(status);
  }
};

// Says that a record is not as long as its file said before.
Status other_size(std::uint64_t found, std::uint64_t expected) {
  return Status(Code::kInvalidArgument,
                "it has " + std::to_string(found) + " bytes, but " +
                    std::to_string(expected) +
                    " when its size was asked for: the file changed");
}

// New bytes objects of sizes that are known.
class KnownBytes final : public Target {
 public:
  KnownBytes(const RecordReader& reader, std::span<const std::int64_t> records)
      : list_(records.size()) {
    const std::vector<std::int64_t> sizes = sizes_of(reader, records);
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      PyList_SET_ITEM(list_.ptr(), to_ssize(k), new_bytes(sizes[k]));
    }
  }

  Result<std::span<std::byte>> place(std::size_t slot,
                                     std::uint64_t size) override {
    const auto room = contents(PyList_GET_ITEM(list_.ptr(), to_ssize(slot)));
    if (size != room.size()) return other_size(size, room.size());
    return room;
  }
  py::object take() override { return std::move(list_); }

 private:
  py::list list_;
};

// Memory that becomes bytes objects when all sizes are known.
class LateBytes final : public Target {
 public:
  explicit LateBytes(std::size_t count) : buffers_(count) {}

  Result<std::span<std::byte>> place(std::size_t slot,
                                     std::uint64_t size) override {
    if (!buffers_[slot].reset(size)) {
      return Status(Code::kNoMemory,
                    "no memory for " + std::to_string(size) + " bytes");
    }
    return buffers_[slot].all();
  }
  py::object take() override {
    py::list list(buffers_.size());
    for (std::size_t k = 0; k < buffers_.size(); ++k) {
      const auto bytes = buffers_[k].all();
      list[k] =
          py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      buffers_[k].shrink(0);
    }
    return list;
  }

 private:
  std::vector<ByteBuffer> buffers_;
};

// The ranges [offsets[k], offsets[k + 1]) of an array of bytes.
class Slots final : public Target {
 public:
  Slots(py::array out, Records offsets, std::size_t count)
      : out_(std::move(out)), offsets_(std::move(offsets)) {
    if (!out_.dtype().equal(py::dtype::of<std::uint8_t>()) ||
        !(out_.flags() & py::array::c_style) || !out_.writeable()) {
      throw py::value_error("out must be C-contiguous, writeable and uint8");
    }
    if (offsets_.ndim() != 1 ||
        static_cast<std::size_t>(offsets_.size()) != count + 1) {
      throw py::value_error("offsets has " + std::to_string(offsets_.size()) +
                            " items, but must have " +
                            std::to_string(count + 1));
    }
    // A copy: other threads may write to the array meanwhile.
    at_.assign(offsets_.data(), offsets_.data() + count + 1);
    if (at_.front() < 0 || at_.back() > out_.nbytes() ||
        !std::ranges::is_sorted(at_)) {
      throw py::value_error("offsets must ascend from 0 to the " +
                            std::to_string(out_.nbytes()) + " bytes of out");
    }
    bytes_ = {static_cast<std::byte*>(out_.mutable_data()),
              static_cast<std::size_t>(out_.nbytes())};
  }

  Result<std::span<std::byte>> place(std::size_t slot,
                                     std::uint64_t size) override {
    const auto begin = static_cast<std::size_t>(at_[slot]);
    const auto room = static_cast<std::size_t>(at_[slot + 1]) - begin;
    if (size != room) {
      refused_.store(true, std::memory_order_relaxed);
      return Status(Code::kInvalidArgument,
                    "it has " + std::to_string(size) +
                        " bytes, but its place in out has " +
                        std::to_string(room));
    }
    return bytes_.subspan(begin, room);
  }
  py::object take() override { return py::none(); }
  [[nodiscard]] bool owns_memory() const override { return false; }
  [[nodiscard]] bool refused() const override {
    return refused_.load(std::memory_order_relaxed);
  }

 private:
  py::array out_;
  Records offsets_;
  std::vector<std::int64_t> at_;
  std::span<std::byte> bytes_;
  std::atomic<bool> refused_{false};  // Read when all threads are done.
};

// The records one after another in an array of bytes, and where they begin.
class Packed final : public Target {
 public:
  Packed(const RecordReader& reader, std::span<const std::int64_t> records)
      : offsets_(to_ssize(records.size() + 1)) {
    if (!reader.knows_sizes() && !records.empty()) {
      buffers_.resize(records.size());
      return;
    }
    const std::vector<std::int64_t> sizes = sizes_of(reader, records);
    allocate([&](std::size_t k) { return sizes[k]; }, sizes.size());
  }

  Result<std::span<std::byte>> place(std::size_t slot,
                                     std::uint64_t size) override {
    if (buffers_.empty()) {
      const auto room = static_cast<std::uint64_t>(at_[slot + 1] - at_[slot]);
      if (size != room) return other_size(size, room);
      return bytes_.subspan(static_cast<std::size_t>(at_[slot]), room);
    }
    if (!buffers_[slot].reset(size)) {
      return Status(Code::kNoMemory,
                    "no memory for " + std::to_string(size) + " bytes");
    }
    return buffers_[slot].all();
  }

  py::object take() override {
    if (!buffers_.empty()) join();
    return py::make_tuple(std::move(data_), std::move(offsets_));
  }

 private:
  template <class SizeOf>
  void allocate(SizeOf size_of, std::size_t count) {
    std::int64_t* const offsets = offsets_.mutable_data();
    offsets[0] = 0;
    for (std::size_t k = 0; k < count; ++k) {
      offsets[k + 1] = offsets[k] + size_of(k);
    }
    data_ = py::array_t<std::uint8_t>(offsets[count]);
    at_ = offsets;
    bytes_ = {reinterpret_cast<std::byte*>(data_.mutable_data()),
              static_cast<std::size_t>(data_.nbytes())};
  }

  void join() {
    const auto size = [&](std::size_t k) {
      return static_cast<std::int64_t>(buffers_[k].all().size());
    };
    allocate(size, buffers_.size());
    for (std::size_t k = 0; k < buffers_.size(); ++k) {
      const auto from = buffers_[k].all();
      std::ranges::copy(from, bytes_.subspan(at_[k], from.size()).begin());
    }
  }

  Records offsets_;
  py::array_t<std::uint8_t> data_;
  const std::int64_t* at_ = nullptr;
  std::span<std::byte> bytes_;
  std::vector<ByteBuffer> buffers_;  // While sizes are not known.
};

std::unique_ptr<Target> new_target(const RecordReader& reader,
                                   std::span<const std::int64_t> records,
                                   bool packed) {
  if (packed) return std::make_unique<Packed>(reader, records);
  if (reader.knows_sizes()) {
    return std::make_unique<KnownBytes>(reader, records);
  }
  return std::make_unique<LateBytes>(records.size());
}

// Reads in this thread.
void read_here(const RecordReader& reader, std::span<const Request> requests,
               Target& target) {
  target.check_read([&] {
    const Unlocked unlocked;
    return reader.read(requests, target);
  }());
}

// What threads use that are at a read.
struct Work {
  const ReaderPtr reader;
  const std::vector<Request> requests;
  std::unique_ptr<Target> target;
  std::optional<SpreadRead> read;  // Last, so that it ends first.

  [[nodiscard]] bool is_far() const { return reader->parallel() > 1; }
};

// Whoever is the last to use it frees it, with the GIL.
using WorkPtr = std::shared_ptr<Work>;

WorkPtr begin_work(ReaderPtr reader, std::vector<Request> requests,
                   std::unique_ptr<Target> target, Pool& pool,
                   std::size_t threads) {
  auto* const made = new Work{std::move(reader), std::move(requests),
                              std::move(target), std::nullopt};
  const WorkPtr work(made, [](Work* old) {
    static_cast<void>(with_python([old] { delete old; }));
  });
  // Nobody waits for what is far away and not wanted any more.
  work->read.emplace(work->is_far() ? far_pool() : pool,
                     work->is_far() ? work->reader->parallel() : threads,
                     *work->reader, work->requests, *work->target,
                     work->is_far() ? work : nullptr);
  return work;
}

// Leaves a read to itself, unless it writes to memory of others.
void leave_work(const WorkPtr& work) {
  if (work->is_far()) {
    work->read->stop();
    if (work->target->owns_memory() || is_python_ending()) return;
  }
  const Unlocked unlocked;
  static_cast<void>(work->read->wait());
}

// Returns true when all was read; false in a forked child, where the threads
// are missing.  The user may interrupt a read of something far away.
bool finish_work(const WorkPtr& work) {
  for (;;) {
    std::optional<bool> finished;
    {
      const Unlocked unlocked;
      finished = work->is_far() ? work->read->wait_for(kSignalPeriod)
                                : work->read->wait();
    }
    if (finished) return *finished;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

// Waits for a read and returns its records.
py::object take_work(const WorkPtr& work) {
  // In a forked child the target is a copy.
  if (finish_work(work)) {
    work->target->check_read(work->read->status());
  } else {
    read_here(*work->reader, work->requests, *work->target);
  }
  return work->target->take();
}

py::object read_all(ReaderPtr reader, std::vector<Request> requests,
                    std::unique_ptr<Target> target) {
  if (reader->parallel() == 1 || requests.size() == 1) {
    read_here(*reader, requests, *target);
    return target->take();
  }
  const WorkPtr work = begin_work(std::move(reader), std::move(requests),
                                  std::move(target), far_pool(), 1);
  try {
    return take_work(work);
  } catch (const py::error_already_set&) {
    leave_work(work);
    throw;
  }
}

py::object read_many(ReaderHandle& handle, const Records& records,
                     bool packed) {
  ReaderPtr reader = handle.reader();
  const auto keys = copy_of(records);
  auto requests = handle.plan(*reader, keys);
  auto target = new_target(*reader, keys, packed);
  return read_all(std::move(reader), std::move(requests), std::move(target));
}

py::bytes read_one(ReaderHandle& handle, std::int64_t record) {
  const ReaderPtr reader = handle.reader();
  const std::span records(&record, 1);
  const auto requests = handle.plan(*reader, records);
  const auto target = new_target(*reader, records, false);
  read_here(*reader, requests, *target);
  return py::cast<py::list>(target->take())[0];
}

void read_into(ReaderHandle& handle, const Records& records, py::array out,
               Records offsets) {
  ReaderPtr reader = handle.reader();
  auto requests = handle.plan(*reader, span_of(records));
  auto slots = std::make_unique<Slots>(std::move(out), std::move(offsets),
                                       requests.size());
  read_all(std::move(reader), std::move(requests), std::move(slots));
}

Records sizes(ReaderHandle& handle, const Records& records) {
  const ReaderPtr reader = handle.reader();
  const auto keys = copy_of(records);
  handle.plan(*reader, keys);
  Records out(records.size());
  const auto found = sizes_of(*reader, keys);
  std::ranges::copy(found, out.mutable_data());
  return out;
}

// A read that threads are at.
class PendingRead {
 public:
  PendingRead(Pool& pool, ReaderHandle& handle, const Records& records,
              bool packed, std::size_t parts) {
    ReaderPtr reader = handle.reader();
    const auto keys = copy_of(records);
    auto requests = handle.plan(*reader, keys);
    auto target = new_target(*reader, keys, packed);
    work_ =
        begin_work(std::move(reader), std::move(requests), std::move(target),
                   pool, parts == 0 ? pool.threads() : parts);
  }
  PendingRead(Pool& pool, ReaderHandle& handle, const Records& records,
              py::array out, Records offsets) {
    ReaderPtr reader = handle.reader();
    auto requests = handle.plan(*reader, span_of(records));
    auto slots = std::make_unique<Slots>(std::move(out), std::move(offsets),
                                         requests.size());
    work_ = begin_work(std::move(reader), std::move(requests), std::move(slots),
                       pool, pool.threads());
  }
  ~PendingRead() {
    if (work_) leave_work(work_);
  }
  PendingRead(const PendingRead&) = delete;
  PendingRead& operator=(const PendingRead&) = delete;

  py::object wait() {
    if (!work_) throw py::value_error("the records were taken already");
    // Taken before the GIL is given up: another thread may wait, too.
    const WorkPtr work = std::exchange(work_, nullptr);
    try {
      return take_work(work);
    } catch (const py::error_already_set&) {
      leave_work(work);
      throw;
    }
  }

 private:
  WorkPtr work_;
};

}  // namespace

void check_file(const Status& status) {
  if (status.code() != Code::kInvalidArgument) return check(status);
  py::set_error(corrupt_record, status.message().c_str());
  throw py::error_already_set();
}

void record_reader(py::module_& m) {
  const py::object type =
      py::module_::import("gristmill.errors").attr("CorruptRecord");
  corrupt_record = type.inc_ref().ptr();
  py::class_<ReaderHandle>(m, "RecordReader", "Records, open for reading.")
      .def("__len__", [](const ReaderHandle& h) { return h.reader()->size(); })
      .def("read", &read_one, "record"_a)
      .def("read_many", &read_many, "records"_a.noconvert(), py::kw_only(),
           "packed"_a = false)
      .def("read_into", &read_into, "records"_a.noconvert(),
           "out"_a.noconvert(), "offsets"_a.noconvert())
      .def("sizes", &sizes, "records"_a.noconvert())
      .def("close", &ReaderHandle::close)
      .def_property_readonly("closed", &ReaderHandle::closed)
      .def_property_readonly("path", &ReaderHandle::path)
      .def_property_readonly("knows_sizes", [](const ReaderHandle& h) {
        return h.reader()->knows_sizes();
      });
  py::class_<PendingRead>(m, "PendingRead", "A read by the threads of a Pool.")
      .def(py::init<Pool&, ReaderHandle&, const Records&, bool, std::size_t>(),
           "pool"_a, "reader"_a, "records"_a.noconvert(), py::kw_only(),
           "packed"_a = false, "parts"_a = 0, py::keep_alive<1, 2>())
      .def(py::init<Pool&, ReaderHandle&, const Records&, py::array, Records>(),
           "pool"_a, "reader"_a, "records"_a.noconvert(), "out"_a.noconvert(),
           "offsets"_a.noconvert(), py::keep_alive<1, 2>())
      .def("wait", &PendingRead::wait);
}

}  // namespace gristmill::bind
