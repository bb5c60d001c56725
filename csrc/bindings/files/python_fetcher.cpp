#include "bindings/files/python_fetcher.hpp"

#include <cerrno>
#include <cstddef>
#include <vector>

#include "bindings/base/shared_object.hpp"
#include "bindings/files/python_file.hpp"
#include "bindings/with_python.hpp"
#include "core/base/byte_buffer.hpp"

namespace gristmill::bind {
namespace {

// Maximum memory that a thread keeps between reads.
constexpr std::size_t kMaxSpareBytes = std::size_t{4} << 20;

ByteBuffer& page_buffer() {
  thread_local ByteBuffer buffer;
  return buffer;
}

std::span<const std::byte> span_of(PyObject* bytes) {
  return {reinterpret_cast<const std::byte*>(PyBytes_AS_STRING(bytes)),
          static_cast<std::size_t>(PyBytes_GET_SIZE(bytes))};
}

}  // namespace

// A single call of fetch().  Only the thread that called fetch() uses it.
class PythonFetch {
 public:
  PythonFetch(std::span<const File::Range> ranges,
              const File::Fetcher::OnArrival& on_arrival)
      : ranges_(ranges), on_arrival_(on_arrival) {}

  // Delivers the ranges that are in the cache, and adds the others to
  // requests_. Returns false if on_arrival_ asked to stop.
  bool deliver_cached() {
    bool should_continue = true;
    for (std::size_t k = 0; should_continue && k < ranges_.size(); ++k) {
      const File::Range& range = ranges_[k];
      const auto& cached_file = file(k).cached_file_;
      RangeRequest request{k, range.begin, range.end};
      if (cached_file.cache) {
        const auto pages =
            RangeCache::pages_of(cached_file.origin, {range.begin, range.end});
        request = {k, pages.begin, pages.end};
        if (read_cached(request, cached_file)) {
          should_continue = on_arrival_(
              k,
              std::span<const std::byte>(page_buffer().all())
                  .subspan(range.begin - pages.begin, range.end - range.begin));
          continue;
        }
      }
      requests_.push_back(request);
    }
    page_buffer().shrink(kMaxSpareBytes);
    return should_continue;
  }

  // Fetches and delivers the ranges in requests_.
  void fetch_uncached() {
    if (requests_.empty()) return;
    bool should_continue = with_python([&] { start(); });
    while (should_continue && status_.ok() && num_outstanding_ > 0) {
      should_continue = with_python([&] { wait(); });
      for (std::size_t i = 0; should_continue && i < arrivals_.size(); ++i) {
        should_continue = deliver(arrivals_[i]);
      }
    }
    static_cast<void>(with_python([&] { finish(); }));
    for (std::size_t k = 0;
         should_continue && !status_.ok() && k < requests_.size(); ++k) {
      if (!has_arrived_[k]) {
        should_continue = on_arrival_(requests_[k].range_index, status_);
      }
    }
  }

 private:
  // A range to request from the file.  It is extended to whole pages if the
  // file has a cache.
  struct RangeRequest {
    std::size_t range_index = 0;  // Index in ranges_.
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  // The bytes of a request, or the error of its read.
  struct Arrival {
    std::size_t request_index = 0;  // Index in requests_.
    PyObject* bytes = nullptr;
    Status status;
  };

  // Calls `fetch` of the first file's object and returns its result, or null if
  // it raised.
  // REQUIRES: the GIL is held.
  static PyObject* call_fetch(std::span<const RangeRequest> requests,
                              const std::vector<PyObject*>& objects) {
    PyObject* const list = PyList_New(static_cast<Py_ssize_t>(requests.size()));
    for (std::size_t k = 0; list != nullptr && k < requests.size(); ++k) {
      const auto at = static_cast<unsigned long long>(requests[k].begin);
      const auto size =
          static_cast<unsigned long long>(requests[k].end - requests[k].begin);
      PyObject* const item = Py_BuildValue("(OKK)", objects[k], at, size);
      if (item == nullptr) {
        Py_DECREF(list);
        return nullptr;
      }
      PyList_SET_ITEM(list, static_cast<Py_ssize_t>(k), item);
    }
    if (list == nullptr) return nullptr;
    PyObject* const pending =
        PyObject_CallMethod(objects.front(), "fetch", "(O)", list);
    Py_DECREF(list);
    return pending;
  }

  // Parses an item of the list that take() returned.
  // REQUIRES: the GIL is held.
  static Result<Arrival> parse(PyObject* item,
                               std::span<const RangeRequest> requests) {
    Arrival arrival;
    PyObject* payload = nullptr;
    Py_ssize_t number = 0;
    if (!PyTuple_Check(item)) {
      PyErr_Format(PyExc_TypeError,
                   "take() returned a list of %R, expected tuples",
                   Py_TYPE(item));
      return take_raised();
    }
    if (!PyArg_ParseTuple(item, "nO", &number, &payload)) return take_raised();
    arrival.request_index = static_cast<std::size_t>(number);
    if (arrival.request_index >= requests.size()) {
      PyErr_Format(PyExc_IndexError, "take() returned range %zd of %zu", number,
                   requests.size());
      return take_raised();
    }
    const std::uint64_t size = requests[arrival.request_index].end -
                               requests[arrival.request_index].begin;
    if (PyExceptionInstance_Check(payload)) {
      Py_INCREF(payload);
      arrival.status = Status::raised(share(payload), "");
    } else if (!PyBytes_Check(payload) ||
               static_cast<std::uint64_t>(PyBytes_GET_SIZE(payload)) != size) {
      PyErr_Format(PyExc_ValueError, "take() returned %R for %llu bytes",
                   Py_TYPE(payload), static_cast<unsigned long long>(size));
      return take_raised();
    } else {
      // Borrowed from the list, which taken_list_ owns.
      arrival.bytes = payload;
    }
    return arrival;
  }

  [[nodiscard]] const PythonFile& file(std::size_t k) const {
    return static_cast<const PythonFile&>(*ranges_[k].file);
  }

  // Reads whole pages to the buffer.  Returns false if they are not in the
  // cache.
  static bool read_cached(const RangeRequest& request,
                          const PythonFile::CachedFile& cached_file) {
    ByteBuffer& buffer = page_buffer();
    return buffer.reset(request.end - request.begin) &&
           cached_file.cache->read(cached_file.origin, request.begin,
                                   buffer.all());
  }

  // REQUIRES for the methods up to report_cache_error(): the GIL is held.

  void start() {
    std::vector<PyObject*> objects;
    for (const RangeRequest& request : requests_) {
      objects.push_back(object_of(file(request.range_index).object_));
    }
    has_arrived_.resize(requests_.size());
    num_outstanding_ = requests_.size();
    pending_ = call_fetch(requests_, objects);
    if (pending_ == nullptr) status_ = take_raised();
  }

  void wait() {
    Py_CLEAR(taken_list_);
    arrivals_.clear();
    report_cache_error();
    taken_list_ = PyObject_CallMethod(pending_, "take", nullptr);
    if (taken_list_ == nullptr) {
      status_ = take_raised();
    } else if (!PyList_Check(taken_list_)) {
      PyErr_Format(PyExc_TypeError, "take() returned %R, expected a list",
                   Py_TYPE(taken_list_));
      status_ = take_raised();
    } else {
      parse_taken_list();
    }
  }

  void parse_taken_list() {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(taken_list_); ++i) {
      auto arrival = parse(PyList_GET_ITEM(taken_list_, i), requests_);
      if (!arrival.ok()) {
        status_ = arrival.status();
        return;
      }
      if (has_arrived_[arrival.value().request_index]) continue;
      arrivals_.push_back(std::move(arrival).value());
      has_arrived_[arrivals_.back().request_index] = true;
      --num_outstanding_;
    }
  }

  void finish() {
    Py_CLEAR(taken_list_);
    report_cache_error();
    if (pending_ == nullptr) return;
    PyObject* const result = PyObject_CallMethod(pending_, "close", nullptr);
    if (result == nullptr) PyErr_Clear();
    Py_XDECREF(result);
    Py_CLEAR(pending_);
  }

  void report_cache_error() {
    if (cache_error_.ok()) return;
    PyObject* const result = PyObject_CallMethod(
        object_of(file(requests_.front().range_index).object_), "cache_failed",
        "s", cache_error_.message().c_str());
    if (result == nullptr) PyErr_Clear();
    Py_XDECREF(result);
    cache_error_ = Status();
  }

  // Runs without the GIL.
  bool deliver(const Arrival& arrival) {
    const RangeRequest& request = requests_[arrival.request_index];
    if (arrival.bytes == nullptr) {
      return on_arrival_(request.range_index, arrival.status);
    }
    const auto bytes = span_of(arrival.bytes);
    const auto& cached_file = file(request.range_index).cached_file_;
    if (cached_file.cache) {
      cached_file.cache->write(cached_file.origin, request.begin, bytes);
      if (cache_error_.ok()) cache_error_ = cached_file.cache->take_problem();
    }
    const File::Range& range = ranges_[request.range_index];
    return on_arrival_(
        request.range_index,
        bytes.subspan(range.begin - request.begin, range.end - range.begin));
  }

  const std::span<const File::Range> ranges_;
  const File::Fetcher::OnArrival& on_arrival_;
  std::vector<RangeRequest> requests_;
  std::vector<bool> has_arrived_;    // For each request.
  std::size_t num_outstanding_ = 0;  // Requests that have not arrived.
  PyObject* pending_ = nullptr;      // The result of fetch(), owned.
  PyObject* taken_list_ = nullptr;   // The last list from take(), owned.
  // Parsed from taken_list_, which owns their bytes.
  std::vector<Arrival> arrivals_;
  Status status_;       // The error that ended the reads.
  Status cache_error_;  // The error of the cache that is not yet reported.
};

void PythonFetcher::fetch(std::span<const File::Range> ranges,
                          const OnArrival& on_arrival) const {
  PythonFetch fetch(ranges, on_arrival);
  if (fetch.deliver_cached()) fetch.fetch_uncached();
}

}  // namespace gristmill::bind
