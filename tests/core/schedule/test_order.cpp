// The order of outputs and published units, without threads or shared memory.
#include "core/check.hpp"
#include "core/schedule/order.hpp"

using namespace gristmill;

namespace {

// Publishes the next unit of stream_to_publish() and returns the stream.
int publish_one(Order& order, std::uint64_t id) {
  const int s = order.stream_to_publish();
  if (s < 0) return s;
  const auto stream = static_cast<std::uint32_t>(s);
  order.add_unit(stream, id, order.plan(stream).count);
  return s;
}

void test_units_are_published_round_robin() {
  Order order(UnitKind::kRange, 4, {8, 8, 4},
              {{{0}, {0}, {0}}, 1, {false, false, false}});
  std::uint64_t id = 1;
  const int expected[] = {1, 2, 0, 1, 0, -1};
  for (const int s : expected) CHECK_EQ(publish_one(order, id++), s);
  CHECK_EQ(order.pending_count(), std::size_t{5});
}

void test_open_unit_counts_until_delivered() {
  Order order(UnitKind::kRange, 2, {-1, -1, -1},
              {{{0}, {0}, {0}}, 0, {false, false, false}});
  for (std::uint64_t id = 1; id <= 4; ++id) publish_one(order, id);
  order.open_unit(0, {2});
  // Stream 0 has one open and one pending unit, the others one pending unit.
  CHECK_EQ(publish_one(order, 5), 1);
  CHECK_EQ(publish_one(order, 6), 2);
  CHECK_EQ(publish_one(order, 7), 0);
}

void test_last_unit_is_short_and_ends_stream() {
  Order order(UnitKind::kRange, 4, {10}, {{{3}}, 0, {false}});
  CHECK_EQ(order.plan(0).first, 3);
  order.add_unit(0, 1, order.plan(0).count);
  CHECK_EQ(order.plan(0).first, 7);
  CHECK_EQ(order.plan(0).count, 3);
  order.add_unit(0, 2, 3);
  CHECK(!order.has_more(0));
  order.open_unit(0, {7});
  order.open_unit(0, {10});
  CHECK_EQ(order.select_next_stream(), 0);
  order.close_unit(0);
  CHECK_EQ(order.select_next_stream(), -1);
  CHECK(order.stream(0).ended);
}

void test_ended_streams_are_skipped() {
  Order order(UnitKind::kSequential, 1, {-1, -1, -1},
              {{{0}, {0}, {0}}, 0, {true, false, true}});
  CHECK_EQ(order.select_next_stream(), 1);
  order.deliver({5});
  CHECK_EQ(order.select_next_stream(), 1);
  CHECK(order.position().positions == (std::vector<Position>{{0}, {5}, {0}}));
}

void test_opened_unit_moves_opened_position() {
  Order order(UnitKind::kSequential, 1, {-1}, {{{0, 0}}, 0, {false}});
  publish_one(order, 1);
  order.open_part(0, {3, 1});
  CHECK(order.stream(0).opened_position == (Position{3, 1}));
  CHECK_EQ(order.pending_count(), std::size_t{1});
  order.open_unit(0, {4, 2});
  CHECK(order.stream(0).opened_position == (Position{4, 2}));
  CHECK(order.stream(0).delivered_position == (Position{0, 0}));
  CHECK_EQ(order.pending_count(), std::size_t{0});
  order.seal(0);
  CHECK(!order.has_more(0));
}

void test_withdrawn_unit_is_planned_again() {
  Order order(UnitKind::kRange, 4, {20}, {{{0}}, 0, {false}});
  Lease lease = order.plan(0);
  lease.id = 1;
  order.add_unit(0, 1, lease.count);
  order.remove_youngest(lease);
  CHECK_EQ(order.plan(0).first, 0);
  order.add_unit(0, 2, 4);
  order.add_unit(0, 3, 4);
  order.restart(0, 2);
  CHECK_EQ(order.plan(0).first, 2);
  CHECK_EQ(order.pending_count(), std::size_t{0});
}

void test_seal_after_drops_later_units() {
  Order order(UnitKind::kSequential, 1, {-1, -1},
              {{{0}, {0}}, 0, {false, false}});
  for (std::uint64_t id = 1; id <= 6; ++id) publish_one(order, id);
  const std::vector<std::uint64_t> behind = {3, 5};
  CHECK(order.seal_after(0, 0) == behind);
  CHECK_EQ(order.pending_count(), std::size_t{4});
  CHECK(!order.has_more(0));
  CHECK(order.seal_after(1, 2).empty());
  order.open_unit(0, {1});
  order.close_unit(0);
  CHECK_EQ(order.select_next_stream(), 1);
}

}  // namespace

int main() {
  test_units_are_published_round_robin();
  test_open_unit_counts_until_delivered();
  test_last_unit_is_short_and_ends_stream();
  test_ended_streams_are_skipped();
  test_opened_unit_moves_opened_position();
  test_withdrawn_unit_is_planned_again();
  test_seal_after_drops_later_units();
}
