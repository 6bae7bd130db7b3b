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

static void another_reactor_is_notified_if_the_first_one_retires(void) {
    peer_server server = server_start();
    fl_shared_page *page = fl_shared_page_open(1);
    int nobody[] = {-1};
    CHECK_NUMBER(FL_OK, fl_loop_join(server.loop, page, 0, -1, nobody, 1));
    fl_watch *watch = fl_watch_open(server.loop, &limits);
    fl_thread thread = {.task = fl_task_self()};
    for (int i = 0; i < 3; i++) CHECK_NUMBER(i, fl_watch_register(watch, &thread));
    fl_route route;
    fl_route_from_path(&route, "GET", 3, "/blocks", 7);
    fl_routes_stall_began(&page->routes, &route, FL_LANE_THREADS, 1, fl_clock());

    int socket = client(&server);
    send_text(socket, "GET /blocks HTTP/1.1\r\nHost: a\r\n\r\n");
    TURN_UNTIL(server.loop, atomic_load(&server.loop->queues[FL_LANE_THREADS].count) == 1);
    CHECK(is_notified(watch, 1));
    CHECK(!is_notified(watch, 2));
    CHECK(fl_watch_retire(watch, 1));
    CHECK(fl_lanes_update(watch, fl_clock()));
    CHECK(is_notified(watch, 2));

    close(socket);
    fl_watch_close(watch);
    server_stop(&server);
    fl_shared_page_close(page);
}

int main(void) {
    TEST(another_reactor_is_notified_if_the_first_one_retires);
    return test_summary();
}
