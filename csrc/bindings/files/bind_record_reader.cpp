// Binds core/files/record_reader.hpp: allocates memory, releases the GIL,
// reads.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>

#include "bindings/files/python_file.hpp"
#include "bindings/files/record_memory.hpp"
#include "bindings/files/record_reader.hpp"
#include "bindings/with_python.hpp"
#include "core/base/byte_buffer.hpp"
#include "core/base/pool.hpp"
#include "core/files/spread_read.hpp"

namespace gristmill::bind {
namespace {

using Request = RecordReader::Request;

// Interval at which a thread that waits for a remote read checks for signals.
constexpr std::chrono::milliseconds kSignalPeriod{100};

// Records of a remote read for each decoding thread, and the maximum number of
// such threads.
constexpr std::size_t kRecordsPerDecoder = 64;
constexpr std::size_t kMaxDecoders = 4;

// Copies the array, because other threads may write to it after the GIL is
// released.
std::vector<std::int64_t> copy_of(const Records& records) {
  if (records.ndim() != 1) {
    throw py::value_error(
        concat("records must have one dimension, got ", records.ndim()));
  }
  return {records.data(), records.data() + records.size()};
}

py::ssize_t to_ssize(std::size_t value) {
  return static_cast<py::ssize_t>(value);
}

std::vector<std::int64_t> sizes_of(const RecordReader& reader,
                                   std::span<const Request> requests) {
  std::vector<std::int64_t> sizes(requests.size());
  check_file(unlocked([&] { return reader.sizes(requests, sizes); }));
  return sizes;
}

// The destination of records.  If their sizes are known in advance, it is the
// memory of Python objects.  Otherwise the records are copied to such memory
// after all are read.  The Python objects are created with the GIL and written
// without it.
class Target final : public RecordReader::Sink {
 public:
  explicit Target(Memory memory) : memory_(std::move(memory)) {}
  Target(std::size_t count, Form form)
      : buffers_(count), form_(std::move(form)) {}

  Result<std::span<std::byte>> place(std::size_t slot,
                                     std::uint64_t size) override {
    if (!memory_) {
      if (buffers_[slot].reset(size)) return buffers_[slot].all();
      return no_memory_for(size, " bytes");
    }
    const auto place = memory_->places[slot];
    if (size == place.size()) return place;
    return damaged("it has ", size, " bytes, but its size was ", place.size(),
                   " before: the file changed while it was read");
  }

  // Returns the Python object with the records.
  // REQUIRES: the GIL is held; all records are read.
  py::object take() {
    if (!memory_) copy_buffers();
    return std::move(memory_->object);
  }

 private:
  void copy_buffers() {
    std::vector<std::int64_t> sizes;
    std::size_t total = 0;
    for (const ByteBuffer& buffer : buffers_) {
      sizes.push_back(static_cast<std::int64_t>(buffer.all().size()));
      total += buffer.all().size();
    }
    memory_ = new_memory(sizes, form_);
    unlocked_from(kCopyUnlockedBytes, total, [this] {
      for (std::size_t k = 0; k < buffers_.size(); ++k) {
        std::ranges::copy(buffers_[k].all(), memory_->places[k].begin());
        buffers_[k].shrink(0);
      }
    });
  }

  std::optional<Memory> memory_;
  std::vector<ByteBuffer> buffers_;
  const Form form_;
};

// A requested read, which threads may be executing.  The Python thread that
// created it uses `reader`, `requests` and `read`; the reading threads write to
// the memory of `target`.
struct ReadJob {
  const ReaderPtr reader;
  const std::vector<Request> requests;
  Target target;
  // Last member, so that it is destroyed first.
  std::optional<SpreadRead> read;

  [[nodiscard]] bool is_remote() const { return reader->parallel() > 1; }
};

// The last owner, a Python thread or a reading thread, deletes it with the GIL.
using ReadJobPtr = std::shared_ptr<ReadJob>;

// Allocates memory for the records of `requests`.  Records that are views of
// mapped files are not read.
ReadJobPtr new_job(ReaderPtr reader, std::vector<Request> requests,
                   const Form& form) {
  Target target = [&] {
    if (!form.packed && !form.dtype.is_none() && reader->has_views()) {
      const auto viewed = std::exchange(requests, {});
      return Target(view_records(*reader, viewed, form.dtype));
    }
    if (!reader->knows_sizes()) return Target(requests.size(), form);
    const auto sizes = sizes_of(*reader, requests);
    return Target(new_memory(*reader, requests, sizes, form));
  }();
  auto* const job = new ReadJob{std::move(reader), std::move(requests),
                                std::move(target), std::nullopt};
  return {job, [](ReadJob* last) {
            static_cast<void>(with_python([last] { delete last; }));
          }};
}

// Checks the requested records and allocates memory for them.
ReadJobPtr new_job(ReaderHandle& handle, std::span<const std::int64_t> records,
                   bool packed) {
  ReaderPtr reader = handle.reader();
  auto requests = handle.plan(*reader, records);
  return new_job(std::move(reader), std::move(requests),
                 {packed, handle.dtype()});
}

// Returns the number of threads for a remote read.  With a fetcher, these are
// the threads that decode the records as fast as the ranges arrive.
std::size_t remote_threads(const ReadJob& job) {
  if (!job.reader->fetches()) return job.reader->parallel();
  return std::clamp(job.requests.size() / kRecordsPerDecoder, std::size_t{1},
                    kMaxDecoders);
}

// Starts the read in threads of `pool`.  Remote reads use the far pool instead.
void start_read(const ReadJobPtr& job, Pool& pool, std::size_t threads) {
  // For remote reads the threads own the work, so that cancelling does not wait
  // for them.
  job->read.emplace(job->is_remote() ? remote_pool() : pool,
                    job->is_remote() ? remote_threads(*job) : threads,
                    *job->reader, job->requests, job->target,
                    job->is_remote() ? job : nullptr);
}

// Cancels a read: parts that have not started are skipped.  Waits for the parts
// in progress, unless the read is remote.
void cancel_read(const ReadJobPtr& job) {
  job->read->stop();
  if (job->is_remote()) return;
  static_cast<void>(unlocked([&] { return job->read->wait(); }));
}

// Returns true when all records are read.  Returns false in a forked child,
// because it does not have the threads.  A signal handler may interrupt the
// wait for a remote read.
bool wait_for_read(const ReadJobPtr& job) {
  for (;;) {
    const std::optional<bool> finished = unlocked([&] {
      return job->is_remote() ? job->read->wait_for(kSignalPeriod)
                              : std::optional(job->read->wait());
    });
    if (finished) return *finished;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

// Reads in this thread and returns the records.
py::object read_in_this_thread(const ReadJobPtr& job) {
  check_file(
      unlocked([&] { return job->reader->read(job->requests, job->target); }));
  return job->target.take();
}

// Waits for a read and returns its records.
py::object take_records(const ReadJobPtr& job) {
  try {
    // In a forked child the target is a copy.
    if (!wait_for_read(job)) return read_in_this_thread(job);
    check_file(job->read->status());
    return job->target.take();
  } catch (const py::error_already_set&) {
    cancel_read(job);
    throw;
  }
}

py::object read_all(const ReadJobPtr& job) {
  if (!job->is_remote() || job->requests.size() == 1) {
    return read_in_this_thread(job);
  }
  start_read(job, remote_pool(), 1);
  return take_records(job);
}

py::object read_many(ReaderHandle& handle, const Records& records,
                     bool packed) {
  return read_all(new_job(handle, copy_of(records), packed));
}

py::object read_slices(ReaderHandle& handle, const Records& records,
                       const Records& begin_array, const Records& end_array,
                       std::uint64_t item_bytes, bool packed) {
  const auto begins = copy_of(begin_array);
  const auto ends = copy_of(end_array);
  const auto reader = handle.reader();
  auto requests = handle.plan(*reader, copy_of(records));
  if (begins.size() != requests.size() || ends.size() != requests.size() ||
      item_bytes == 0) {
    throw py::value_error(concat("begins and ends must have the ",
                                 requests.size(), " items of records, got ",
                                 begins.size(), " and ", ends.size()));
  }
  std::ranges::sort(requests, {}, [&](const Request& request) {
    return std::pair(request.record, begins[request.slot]);
  });
  std::vector<RecordReader::Slice> slices;
  slices.reserve(requests.size());
  for (Request& request : requests) {
    slices.push_back(
        {request.record, begins[request.slot], ends[request.slot]});
    request.record = static_cast<std::int64_t>(slices.size() - 1);
  }
  if (slices.empty()) {
    return read_all(new_job(reader, {}, {packed, handle.dtype()}));
  }
  auto sliced = checked_file(
      unlocked([&] { return reader->slices(slices, item_bytes); }));
  return read_all(new_job(std::move(sliced), std::move(requests),
                          {packed, handle.dtype()}));
}

py::object read_one(ReaderHandle& handle, std::int64_t record) {
  return read_in_this_thread(new_job(handle, {&record, 1}, false))[py::int_(0)];
}

Records sizes(ReaderHandle& handle, const Records& records) {
  const ReaderPtr reader = handle.reader();
  const auto requests = handle.plan(*reader, copy_of(records));
  const auto found = sizes_of(*reader, requests);
  return Records(to_ssize(found.size()), found.data());
}

// A read in progress in other threads.
class PendingRead {
 public:
  PendingRead(Pool& pool, ReaderHandle& handle, const Records& records,
              bool packed, std::size_t parts)
      : job_(new_job(handle, copy_of(records), packed)) {
    start_read(job_, pool, parts == 0 ? pool.threads() : parts);
  }
  ~PendingRead() {
    if (job_) cancel_read(job_);
  }
  PendingRead(const PendingRead&) = delete;
  PendingRead& operator=(const PendingRead&) = delete;

  py::object wait() {
    if (!job_) throw py::value_error("wait() was already called");
    // Reset job_ before releasing the GIL, because another thread may call
    // wait() too.
    return take_records(std::exchange(job_, nullptr));
  }

 private:
  ReadJobPtr job_;
};

}  // namespace

void raise_corrupt(const std::string& message,
                   std::optional<std::size_t> position) {
  const py::object text =
      py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
          message.data(), static_cast<py::ssize_t>(message.size()),
          "backslashreplace"));
  if (!text) throw py::error_already_set();
  const py::object type =
      py::module_::import("gristmill.errors").attr("CorruptRecord");
  const py::object error = type(text);
  if (position) error.attr("position") = *position;
  py::set_error(type, error);
  throw py::error_already_set();
}

void check_file(const Status& status) {
  if (status.code() != Code::kInvalidArgument) return check(status);
  raise_corrupt(status.message());
}

void record_reader(py::module_& m) {
  py::class_<ReaderHandle>(m, "RecordReader", "An open reader of records.")
      .def("__len__", [](const ReaderHandle& h) { return h.reader()->size(); })
      .def("read", &read_one, "record"_a,
           "Return one record.  Other records can be read after a "
           "CorruptRecord.")
      .def(
          "read_many", &read_many, "records"_a.noconvert(), py::kw_only(),
          "packed"_a = false,
          "Return a list of the records with int64 indices of shape (n,).  If\n"
          "packed, return (data, offsets) instead, uint8 and int64 of shape\n"
          "(n + 1,).  Record k is data[offsets[k]:offsets[k + 1]].")
      .def("read_slices", &read_slices, "records"_a.noconvert(),
           "begins"_a.noconvert(), "ends"_a.noconvert(), "item_bytes"_a,
           py::kw_only(), "packed"_a = false,
           "Return items [begin, end) of each record, of item_bytes bytes, in\n"
           "the form of read_many().  Only their bytes are read.")
      .def("sizes", &sizes, "records"_a.noconvert(),
           "Return the sizes of records, in bytes.")
      .def("close", &ReaderHandle::close)
      .def_property_readonly("closed", &ReaderHandle::closed)
      .def_property_readonly("path", &ReaderHandle::path)
      .def_property_readonly("knows_sizes", [](const ReaderHandle& h) {
        return h.reader()->knows_sizes();
      });
  py::class_<PendingRead>(m, "PendingRead", "A read by threads of a Pool.")
      .def(py::init<Pool&, ReaderHandle&, const Records&, bool, std::size_t>(),
           "pool"_a, "reader"_a, "records"_a.noconvert(), py::kw_only(),
           "packed"_a = false, "parts"_a = 0, py::keep_alive<1, 2>())
      .def("wait", &PendingRead::wait,
           "Wait for the read and return the result of read_many().");
}

}  // namespace gristmill::bind
