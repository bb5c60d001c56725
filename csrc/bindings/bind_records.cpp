// Binds core/record_file.hpp: makes bytes or checks arrays, drops the GIL,
// reads.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "core/byte_buffer.hpp"
#include "core/pool.hpp"
#include "core/record_file.hpp"

namespace gristmill::bind {
namespace {

using Records = py::array_t<std::int64_t, py::array::c_style>;
using Request = RecordFile::Request;
using FilePtr = std::shared_ptr<const RecordFile>;

// Raised for a file that is not as it should be; set when the module starts
// and alive as long as the process.
PyObject* record_error = nullptr;

// As check(), but it is the file that is invalid and no argument.
void check_file(const Status& status) {
  if (status.code() != Code::kInvalidArgument) return check(status);
  py::set_error(record_error, status.message().c_str());
  throw py::error_already_set();
}

template <class T>
T checked_file(Result<T> result) {
  check_file(result.status());
  return std::move(result).value();
}

Verify verify_of(std::string_view name) {
  if (name == "all") return Verify::kAll;
  if (name == "headers") return Verify::kHeaders;
  if (name == "none") return Verify::kNone;
  throw py::value_error("verify is '" + std::string(name) +
                        "', but must be 'all', 'headers' or 'none'");
}

File::Access access_of(std::string_view name) {
  if (name == "pread") return File::Access::kPread;
  if (name == "mmap") return File::Access::kMmap;
  throw py::value_error("access is '" + std::string(name) +
                        "', but must be 'pread' or 'mmap'");
}

std::span<const std::int64_t> span_of(const Records& records) {
  if (records.ndim() != 1) {
    throw py::value_error("records must have one dimension");
  }
  return {records.data(), static_cast<std::size_t>(records.size())};
}

py::bytes new_bytes(std::uint64_t size) {
  if (size > PY_SSIZE_T_MAX) throw std::bad_alloc();
  PyObject* const bytes =
      PyBytes_FromStringAndSize(nullptr, static_cast<py::ssize_t>(size));
  if (bytes == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::bytes>(bytes);
}

std::span<std::byte> contents(PyObject* bytes) {
  return {reinterpret_cast<std::byte*>(PyBytes_AS_STRING(bytes)),
          static_cast<std::size_t>(PyBytes_GET_SIZE(bytes))};
}

// Where records go: a Sink of which the Python side is made beforehand or
// afterwards, with the GIL, and which is written to without.
struct Target : RecordFile::Sink {
  // Returns what the caller gets.  REQUIRES: the GIL is held; all was read.
  virtual py::object take() = 0;

  // True if a record did not fit: then it is not the file that is wrong.
  [[nodiscard]] virtual bool refused() const { return false; }

  // Raises what a failed read stands for.  REQUIRES: the GIL is held.
  void check_read(const Status& status) const {
    refused() ? check(status) : check_file(status);
  }
};

// New bytes objects of sizes that are known.
class KnownBytes final : public Target {
 public:
  KnownBytes(const RecordFile& file, std::span<const std::int64_t> records,
             std::span<const Request> requests)
      : list_(records.size()) {
    for (const Request& request : requests) {
      const auto record = static_cast<std::uint64_t>(request.record);
      const auto size = file.index().chunk(record).decoded_size;
      list_[request.slot] = new_bytes(size);
    }
  }

  Result<std::span<std::byte>> place(std::size_t slot, std::uint64_t) override {
    return contents(PyList_GET_ITEM(list_.ptr(), to_ssize(slot)));
  }
  py::object take() override { return std::move(list_); }

 private:
  static py::ssize_t to_ssize(std::size_t value) {
    return static_cast<py::ssize_t>(value);
  }
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
    at_ = {offsets_.data(), count + 1};
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
  [[nodiscard]] bool refused() const override {
    return refused_.load(std::memory_order_relaxed);
  }

 private:
  py::array out_;
  Records offsets_;
  std::span<const std::int64_t> at_;
  std::span<std::byte> bytes_;
  std::atomic<bool> refused_{false};  // Read when all threads are done.
};

std::unique_ptr<Target> new_target(const RecordFile& file,
                                   std::span<const std::int64_t> records,
                                   std::span<const Request> requests) {
  if (file.knows_sizes()) {
    return std::make_unique<KnownBytes>(file, records, requests);
  }
  return std::make_unique<LateBytes>(records.size());
}

// A RecordFile that can be closed.
class Handle {
 public:
  Handle(std::string path, const std::string& verify, const std::string& access,
         std::size_t cache_bytes) {
    const RecordFile::Options options{verify_of(verify), access_of(access),
                                      cache_bytes};
    file_ = checked_file([&] {
      const py::gil_scoped_release unlocked;
      return RecordFile::open(path, options);
    }());
    path_ = std::move(path);
  }

  void close() { file_.reset(); }
  [[nodiscard]] bool closed() const { return file_ == nullptr; }
  [[nodiscard]] const std::string& path() const { return path_; }

  // A reader keeps the file open by its own reference.
  [[nodiscard]] FilePtr file() const {
    if (!file_) throw py::value_error(path_ + ": the file is closed");
    return file_;
  }

  py::bytes read(std::int64_t record) const {
    const FilePtr file = this->file();
    const std::span records(&record, 1);
    const auto requests = checked_file(file->plan(records));
    const auto target = new_target(*file, records, requests);
    read_all(*file, requests, *target);
    return py::cast<py::list>(target->take())[0];
  }

  py::list read_many(const Records& records) const {
    const FilePtr file = this->file();
    const auto requests = checked_file(file->plan(span_of(records)));
    const auto target = new_target(*file, span_of(records), requests);
    read_all(*file, requests, *target);
    return target->take();
  }

  void read_into(const Records& records, py::array out, Records offsets) const {
    const FilePtr file = this->file();
    const auto requests = checked_file(file->plan(span_of(records)));
    Slots slots(std::move(out), std::move(offsets), requests.size());
    read_all(*file, requests, slots);
  }

  // Returns where a chunk begins and ends, the size of its records together,
  // and how many they are.
  py::tuple chunk(std::uint64_t chunk) const {
    const RecordIndex& index = file()->index();
    if (chunk >= index.num_chunks()) {
      throw py::index_error("chunk " + std::to_string(chunk) + " of " +
                            std::to_string(index.num_chunks()));
    }
    const auto place = index.chunk(chunk);
    return py::make_tuple(place.begin, place.end, place.decoded_size,
                          index.records_in(chunk));
  }

  Records sizes(const Records& records) const {
    const FilePtr file = this->file();
    const auto wanted = span_of(records);
    Records out(records.size());
    const std::span to(out.mutable_data(), wanted.size());
    check_file([&] {
      const py::gil_scoped_release unlocked;
      return file->sizes(wanted, to);
    }());
    return out;
  }

 private:
  static void read_all(const RecordFile& file,
                       std::span<const Request> requests, Target& target) {
    target.check_read([&] {
      const py::gil_scoped_release unlocked;
      return file.read(requests, target);
    }());
  }

  FilePtr file_;
  std::string path_;
};

// A read that the threads of a pool are at.
class PendingRead {
 public:
  PendingRead(Pool& pool, const Handle& handle, const Records& records)
      : PendingRead(handle, records) {
    target_ = new_target(*file_, span_of(records), requests_);
    start(pool);
  }
  PendingRead(Pool& pool, const Handle& handle, const Records& records,
              py::array out, Records offsets)
      : PendingRead(handle, records) {
    target_ = std::make_unique<Slots>(std::move(out), std::move(offsets),
                                      requests_.size());
    start(pool);
  }
  ~PendingRead() { finish(); }
  PendingRead(const PendingRead&) = delete;
  PendingRead& operator=(const PendingRead&) = delete;

  py::object wait() {
    finish();
    if (!target_) throw py::value_error("the records were taken already");
    for (const Status& status : statuses_) target_->check_read(status);
    const auto target = std::exchange(target_, nullptr);
    return target->take();
  }

 private:
  PendingRead(const Handle& handle, const Records& records)
      : file_(handle.file()),
        requests_(checked_file(file_->plan(span_of(records)))) {}

  void start(Pool& pool) {
    const auto parts = file_->cut(requests_, pool.threads());
    statuses_.resize(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      pool.run(group_, [this, i, part = parts[i]] {
        statuses_[i] = file_->read(part, *target_);
      });
    }
  }

  void finish() {
    const py::gil_scoped_release unlocked;
    group_.wait();
  }

  const FilePtr file_;
  const std::vector<Request> requests_;
  std::unique_ptr<Target> target_;
  std::vector<Status> statuses_;  // One for each task, written by it.
  TaskGroup group_;
};

}  // namespace

void records(py::module_& m) {
  record_error =
      py::exception<void>(m, "RecordError", PyExc_ValueError).release().ptr();
  py::class_<Handle>(m, "RecordFile", "An ArrayRecord file, open for reading.")
      .def(py::init<std::string, const std::string&, const std::string&,
                    std::size_t>(),
           "path"_a, "verify"_a = "all", "access"_a = "pread",
           "cache_bytes"_a = RecordFile::Options().cache_bytes)
      .def("__len__", [](const Handle& h) { return h.file()->size(); })
      .def("read", &Handle::read, "record"_a)
      .def("read_many", &Handle::read_many, "records"_a.noconvert())
      .def("read_into", &Handle::read_into, "records"_a.noconvert(),
           "out"_a.noconvert(), "offsets"_a.noconvert())
      .def("sizes", &Handle::sizes, "records"_a.noconvert())
      .def("chunk", &Handle::chunk, "chunk"_a)
      .def("close", &Handle::close)
      .def_property_readonly("closed", &Handle::closed)
      .def_property_readonly("path", &Handle::path)
      .def_property_readonly(
          "options",
          [](const Handle& h) { return py::str(h.file()->index().options()); })
      .def_property_readonly(
          "group_size",
          [](const Handle& h) { return h.file()->index().group_size(); })
      .def_property_readonly(
          "num_chunks",
          [](const Handle& h) { return h.file()->index().num_chunks(); })
      .def_property_readonly(
          "index_bytes",
          [](const Handle& h) { return h.file()->index().held_bytes(); })
      .def_property_readonly("cached_bytes", [](const Handle& h) {
        return h.file()->cache().held_bytes();
      });
  py::class_<PendingRead>(m, "PendingRead", "A read by the threads of a Pool.")
      .def(py::init<Pool&, const Handle&, const Records&>(), "pool"_a, "file"_a,
           "records"_a.noconvert(), py::keep_alive<1, 2>())
      .def(py::init<Pool&, const Handle&, const Records&, py::array, Records>(),
           "pool"_a, "file"_a, "records"_a.noconvert(), "out"_a.noconvert(),
           "offsets"_a.noconvert(), py::keep_alive<1, 2>())
      .def("wait", &PendingRead::wait);
}

}  // namespace gristmill::bind
