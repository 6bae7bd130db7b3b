#include "base/buffer.h"
#include "test.h"

static void an_empty_buffer_holds_no_block(void) {
    fl_slab slab = {0};
    fl_buffer buffer = {0};
    CHECK(fl_buffer_at(&buffer) == NULL);
    CHECK(fl_buffer_room(&buffer) == NULL);
    CHECK_NUMBER(0, fl_buffer_room_size(&buffer));
    CHECK_NUMBER(FL_OK, fl_buffer_reserve(&slab, &buffer, 0));
    CHECK_NUMBER(FL_OK, fl_buffer_append(&slab, &buffer, NULL, 0));
    CHECK(buffer.block == NULL);
    fl_buffer_consume(&slab, &buffer, 0);
    fl_buffer_free(&slab, &buffer);
    CHECK_NUMBER(0, slab.in_use);
    fl_slab_close(&slab);
}

static void bytes_are_consumed_in_the_order_in_which_they_were_appended(void) {
    fl_slab slab = {0};
    fl_buffer buffer = {0};
    unsigned in = 0, out = 0;
    for (unsigned round = 1; round < 3000; round++) {
        char bytes[97];
        unsigned add = round * 7 % sizeof bytes, take = round * 5 % 61;
        for (unsigned i = 0; i < add; i++)
            bytes[i] = (char) (in++ * 31 % 251);
        char *exact = test_copy(bytes, add);
        CHECK_NUMBER(FL_OK, fl_buffer_append(&slab, &buffer, exact, add));
        free(exact);
        if (take > buffer.length)
            take = buffer.length;
        for (unsigned i = 0; i < take; i++)
            CHECK_NUMBER((char) (out++ * 31 % 251), fl_buffer_at(&buffer)[i]);
        fl_buffer_consume(&slab, &buffer, take);
        CHECK_NUMBER(in - out, buffer.length);
    }
    CHECK(buffer.length > 10000);
    for (unsigned i = 0; i < buffer.length; i++)
        CHECK_NUMBER((char) (out++ * 31 % 251), fl_buffer_at(&buffer)[i]);
    fl_buffer_consume(&slab, &buffer, buffer.length);
    CHECK(buffer.block == NULL);
    CHECK_NUMBER(0, slab.in_use);
    fl_slab_close(&slab);
}

static void reserved_room_can_be_written(void) {
    fl_slab slab = {0};
    fl_buffer buffer = {0};
    const size_t sizes[] = {1, 1023, 1024, 1025, 4096, 131072, 131073, 300000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        CHECK_NUMBER(FL_OK, fl_buffer_reserve(&slab, &buffer, sizes[i]));
        CHECK(fl_buffer_room_size(&buffer) >= sizes[i]);
        memset(fl_buffer_room(&buffer), (int) i, sizes[i]);
        fl_buffer_added(&buffer, sizes[i]);
        CHECK_NUMBER(i, fl_buffer_at(&buffer)[buffer.length - 1]);
        CHECK_NUMBER(0, fl_buffer_at(&buffer)[0]);
    }
    fl_buffer_free(&slab, &buffer);
    fl_slab_close(&slab);
}

static void a_returned_block_is_reused(void) {
    fl_slab slab = {0};
    fl_buffer first = {0}, second = {0};
    fl_buffer_append(&slab, &first, "one", 3);
    char *block = first.block;
    fl_buffer_consume(&slab, &first, 3);
    CHECK_NUMBER(FL_SLAB_SMALLEST, slab.cached);
    fl_buffer_append(&slab, &second, "two", 3);
    CHECK(second.block == block);
    CHECK_NUMBER(0, slab.cached);
    fl_buffer_append(&slab, &first, "three", 5);
    CHECK(first.block != block);
    CHECK_BYTES("two", 3, fl_buffer_at(&second), second.length);
    fl_buffer_free(&slab, &first);
    fl_buffer_free(&slab, &second);
    fl_slab_close(&slab);
    CHECK_NUMBER(0, slab.cached);
}

static void a_slab_caches_a_limited_number_of_bytes(void) {
    enum { MANY = 64 };
    fl_slab slab = {0};
    fl_buffer buffers[MANY] = {{0}};
    for (int i = 0; i < MANY; i++)
        CHECK_NUMBER(FL_OK, fl_buffer_reserve(&slab, &buffers[i], 128 * 1024));
    CHECK_NUMBER(MANY * 128 * 1024, slab.in_use);
    for (int i = 0; i < MANY; i++)
        fl_buffer_free(&slab, &buffers[i]);
    CHECK_NUMBER(0, slab.in_use);
    CHECK_NUMBER(FL_SLAB_CACHE_SIZE, slab.cached);
    fl_slab_close(&slab);
}

static void large_blocks_are_not_cached(void) {
    fl_slab slab = {0};
    fl_buffer buffer = {0};
    fl_buffer_reserve(&slab, &buffer, 128 * 1024 + 1);
    fl_buffer_free(&slab, &buffer);
    CHECK_NUMBER(0, slab.cached);
    CHECK_NUMBER(0, slab.in_use);
    fl_slab_close(&slab);
}

static void a_buffer_reuses_consumed_room_before_it_grows(void) {
    fl_slab slab = {0};
    fl_buffer buffer = {0};
    char bytes[1000];
    memset(bytes, 'x', sizeof bytes);
    for (int i = 0; i < 100; i++) {
        fl_buffer_append(&slab, &buffer, bytes, 500);
        fl_buffer_consume(&slab, &buffer, 499 + (i > 0));
    }
    CHECK_NUMBER(1, buffer.length);
    CHECK_NUMBER(1024, buffer.capacity);
    fl_buffer_free(&slab, &buffer);
    fl_slab_close(&slab);
}

static void growing_beyond_the_limit_fails_and_changes_nothing(void) {
    fl_slab slab = {0};
    fl_buffer buffer = {0};
    fl_buffer_append(&slab, &buffer, "kept", 4);
    fl_buffer before = buffer;
    CHECK_NUMBER(FL_NO_MEMORY, fl_buffer_reserve(&slab, &buffer, SIZE_MAX));
    CHECK_NUMBER(FL_NO_MEMORY, fl_buffer_reserve(&slab, &buffer, SIZE_MAX - 4));
    CHECK_NUMBER(FL_NO_MEMORY, fl_buffer_reserve(&slab, &buffer, (size_t) 1 << 31));
    CHECK_NUMBER(FL_NO_MEMORY, fl_buffer_reserve(&slab, &buffer, (size_t) 1 << 32));
    CHECK(memcmp(&before, &buffer, sizeof buffer) == 0);
    CHECK_BYTES("kept", 4, fl_buffer_at(&buffer), buffer.length);
    fl_buffer_free(&slab, &buffer);
    fl_slab_close(&slab);
}

static void consuming_more_than_all_empties_the_buffer(void) {
    fl_slab slab = {0};
    fl_buffer buffer = {0};
    fl_buffer_append(&slab, &buffer, "abc", 3);
    fl_buffer_consume(&slab, &buffer, 4);
    CHECK_NUMBER(0, buffer.length);
    CHECK(buffer.block == NULL);
    fl_slab_close(&slab);
}

int main(void) {
    TEST(an_empty_buffer_holds_no_block);
    TEST(bytes_are_consumed_in_the_order_in_which_they_were_appended);
    TEST(reserved_room_can_be_written);
    if (FL_REUSE_MEMORY)
        TEST(a_returned_block_is_reused);
    TEST(a_slab_caches_a_limited_number_of_bytes);
    TEST(large_blocks_are_not_cached);
    TEST(a_buffer_reuses_consumed_room_before_it_grows);
    TEST(growing_beyond_the_limit_fails_and_changes_nothing);
    TEST(consuming_more_than_all_empties_the_buffer);
    return test_summary();
}
