// Binds core/schedule/pool_lane.hpp.
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "bindings/bind.hpp"
#include "core/schedule/pool_lane.hpp"

namespace gristmill::bind {
namespace {

class OwnedPoolLane {
 public:
  OwnedPoolLane(int arena_fd, int notify_fd, std::uint32_t worker,
                std::uint32_t generation, std::shared_ptr<PoolResults> results)
      : end_(checked(WorkerEnd::open(arena_fd, notify_fd, worker, generation))),
        results_(std::move(results)),
        lane_(*end_, *results_) {}

  py::tuple serve(int socket, std::int64_t server, bool sends) {
    PoolEvent event;
    {
      const Unlocked unlocked;
      event = lane_.serve(socket, server, sends);
    }
    switch (event.kind) {
      case PoolEvent::Kind::kStop:
        return py::make_tuple("stop", py::bytes());
      case PoolEvent::Kind::kRequest:
        return py::make_tuple("request", py::bytes(event.packet));
      case PoolEvent::Kind::kPacket:
        break;
    }
    return py::make_tuple("packet", py::bytes(event.packet));
  }

  [[nodiscard]] std::uint64_t served() const { return lane_.served(); }

 private:
  std::unique_ptr<WorkerEnd> end_;
  std::shared_ptr<PoolResults> results_;
  PoolLane lane_;
};

py::list take_results(PoolResults& results) {
  py::list taken;
  for (const PoolResult& result : results.take()) {
    taken.append(py::make_tuple(result.stream, result.unit, result.server,
                                1e-9 * static_cast<double>(result.start_ns),
                                1e-9 * static_cast<double>(result.arrival_ns),
                                py::bytes(result.details)));
  }
  return taken;
}

}  // namespace

void pool_lane(py::module_& m) {
  py::class_<PoolResults, std::shared_ptr<PoolResults>>(
      m, "PoolResults", "The results of lanes that the consumer has not taken.")
      .def(py::init<>())
      .def("take", &take_results,
           "Return the stream, the unit, the server, the times of the request\n"
           "and of the arrival, and the details of each result.");
  py::class_<OwnedPoolLane>(m, "PoolLane",
                            "A lane of a host's pool, in place of a worker.")
      .def(py::init<int, int, std::uint32_t, std::uint32_t,
                    std::shared_ptr<PoolResults>>(),
           "arena_fd"_a, "notify_fd"_a, "worker"_a, "generation"_a, "results"_a)
      .def("serve", &OwnedPoolLane::serve, "socket"_a, "server"_a, "sends"_a,
           "Have a server compute units.  Return a pair: \"stop\" and b\"\";\n"
           "\"request\" and the request that the caller must send; or\n"
           "\"packet\" and what the server sent, b\"\" if it is gone.  Send "
           "the\n"
           "request of a unit that the lane holds only if `sends`.")
      .def_property_readonly("served", &OwnedPoolLane::served,
                             "The number of units that were computed.");
}

}  // namespace gristmill::bind
