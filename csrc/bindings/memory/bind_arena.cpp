// Binds core/memory/arena.hpp for a process that hands out slots without views.
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "bindings/bind.hpp"
#include "core/memory/arena.hpp"

namespace gristmill::bind {
namespace {

// An arena, and its taken slots by their offset.
struct ArenaHandle {
  std::unique_ptr<Arena> arena;
  std::unordered_map<std::uint64_t, ArenaSlot*> taken;
};

ArenaHandle make_arena(std::uint64_t memory_limit) {
  return {checked(Arena::create(0, memory_limit)), {}};
}

// Returns (offset, capacity) in bytes, or None.
py::object take(ArenaHandle& self, std::uint64_t bytes, bool beyond_limit) {
  ArenaSlot* const slot = self.arena->take(bytes, beyond_limit);
  if (slot == nullptr) return py::none();
  self.taken[slot->offset] = slot;
  return py::make_tuple(slot->offset, slot->capacity);
}

ArenaSlot* slot_at(const ArenaHandle& self, std::uint64_t offset) {
  const auto found = self.taken.find(offset);
  if (found == self.taken.end()) {
    throw py::value_error(
        concat("no slot was taken at offset ", offset, " of the arena"));
  }
  return found->second;
}

void charge_populated(ArenaHandle& self, std::uint64_t offset,
                      std::uint64_t bytes) {
  self.arena->charge_populated(slot_at(self, offset), bytes);
}

void give_back(ArenaHandle& self, std::uint64_t offset) {
  self.arena->give_back(slot_at(self, offset));
  self.taken.erase(offset);
}

}  // namespace

void arena(py::module_& m) {
  py::class_<ArenaHandle>(
      m, "Arena",
      "Shared memory whose slots are handed out by offset; see arena.hpp.\n\n"
      "Not thread-safe.")
      .def(py::init(&make_arena), "memory_limit"_a,
           "Map the memory; a limit of 0 is 80 % of the available memory.")
      .def_property_readonly(
          "fd", [](const ArenaHandle& self) { return self.arena->fd(); },
          "The descriptor of the memory.")
      .def_property_readonly(
          "bytes", [](const ArenaHandle& self) { return self.arena->bytes(); },
          "The size of the mapping.")
      .def_property_readonly(
          "charged",
          [](const ArenaHandle& self) { return self.arena->charged(); },
          "The bytes of all slots that may have pages.")
      .def(
          "take", &take, "bytes"_a, "beyond_limit"_a = false,
          "Return the offset and the capacity of a slot, or None if the limit\n"
          "leaves no room.")
      .def("charge_populated", &charge_populated, "offset"_a, "bytes"_a,
           "Record how many bytes of a slot may have pages.")
      .def("give_back", &give_back, "offset"_a,
           "Take back a slot, to reuse it.");
}

}  // namespace gristmill::bind
