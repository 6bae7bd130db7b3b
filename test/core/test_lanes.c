/* Which reactor is notified of a request that waits in a lane. One thread plays all of them. */
#include "watch/lanes.h"
#include "peer.h"

#include <sys/poll.h>

static const fl_watch_limits limits = {
    .tick = 2 * MILLISECOND, .blocked = 4 * MILLISECOND, .stuck = 7 * MILLISECOND, .computing = 60 * MILLISECOND};

static bool is_notified(fl_watch *watch, int reactor) {
    struct pollfd lead = {.fd = watch->reactors[reactor].lead.read_end, .events = POLLIN};
    return poll(&lead, 1, 0) == 1;
}

/* A server whose watch thread does not run, with `reactors`, which rest, in a thread that does not hold the GVL. The first one leads. */
typedef struct {
    peer_server server;
    fl_shared_page *page;
    fl_watch *watch;
    fl_thread thread;
} lane_server;

static void open_lane(lane_server *lane, int reactors) {
    static const int nobody[] = {-1};
    *lane = (lane_server) {.server = server_start(), .page = fl_shared_page_open(1), .thread = {.task = fl_task_self()}};
    CHECK_NUMBER(FL_OK, fl_loop_join(lane->server.loop, lane->page, 0, -1, nobody, 1));
    lane->watch = fl_watch_open(lane->server.loop, &limits);
    for (int i = 0; i < reactors; i++) CHECK_NUMBER(i, fl_watch_register(lane->watch, &lane->thread));
    fl_route route;
    fl_route_from_path(&route, "GET", 3, "/blocks", 7);
    fl_routes_stall_began(&lane->page->routes, &route, FL_LANE_THREADS, 1, fl_clock());
}

static void close_lane(lane_server *lane) {
    fl_watch_close(lane->watch);
    server_stop(&lane->server);
    fl_shared_page_close(lane->page);
}

static int request_that_blocks(lane_server *lane) {
    fl_fifo *queue = &lane->server.loop->queues[FL_LANE_THREADS];
    uint32_t before = atomic_load(&queue->count);
    int socket = client(&lane->server);
    send_text(socket, "GET /blocks HTTP/1.1\r\nHost: a\r\n\r\n");
    TURN_UNTIL(lane->server.loop, atomic_load(&queue->count) == before + 1);
    return socket;
}

static void another_reactor_is_notified_if_the_first_one_retires(void) {
    lane_server lane;
    open_lane(&lane, 3);
    int socket = request_that_blocks(&lane);
    CHECK(is_notified(lane.watch, 1));
    CHECK(!is_notified(lane.watch, 2));
    CHECK(fl_watch_retire(lane.watch, 1));
    CHECK(fl_lanes_update(lane.watch, fl_clock()));
    CHECK(is_notified(lane.watch, 2));
    close(socket);
    close_lane(&lane);
}

/* On its way to the request, the reactor resumes other fibers: between them it is in its loop, and holds the GVL. */
static void no_other_reactor_is_notified_while_the_first_one_is_on_its_way(void) {
    lane_server lane;
    open_lane(&lane, 3);
    fl_thread of_first = {.task = fl_task_self()};
    atomic_store(&lane.watch->reactors[1].thread, &of_first);
    int socket = request_that_blocks(&lane);
    CHECK(is_notified(lane.watch, 1));
    atomic_store(&of_first.gvl, FL_GVL_HELD);
    fl_reactor_leaves_app(&lane.watch->reactors[1]);
    CHECK(fl_lanes_update(lane.watch, fl_clock()));
    CHECK(!is_notified(lane.watch, 2));
    close(socket);
    close_lane(&lane);
}

static void a_reactor_that_has_missed_a_request_is_notified_once_it_rests(void) {
    lane_server lane;
    open_lane(&lane, 2);
    fl_thread of_first = {.task = fl_task_self()};
    atomic_store(&of_first.gvl, FL_GVL_HELD);
    atomic_store(&lane.watch->reactors[1].thread, &of_first);
    atomic_store(&lane.watch->reactors[1].lane, true);
    int socket = request_that_blocks(&lane);
    CHECK(!is_notified(lane.watch, 1));
    atomic_store(&of_first.gvl, FL_GVL_RELEASED);
    CHECK(fl_lanes_update(lane.watch, fl_clock()));
    CHECK(is_notified(lane.watch, 1));
    close(socket);
    close_lane(&lane);
}

int main(void) {
    TEST(another_reactor_is_notified_if_the_first_one_retires);
    TEST(no_other_reactor_is_notified_while_the_first_one_is_on_its_way);
    TEST(a_reactor_that_has_missed_a_request_is_notified_once_it_rests);
    return test_summary();
}
