/* Memory that an algorithm lays out. */
#include "csrc/base/size.h"
#include "csrc/base/types.h"
#include "csrc/sparse/algorithm.h"

enum { ALIGN = 256, VALUE_ALIGN = 16, PACKET_ALIGN = 64 };

static void *take(char *base, size_t *used, size_t bytes)
{
    const size_t at = tri_round_up(*used, ALIGN);
    *used = at + bytes;
    return base == NULL ? NULL : base + at;
}

void *tri_arena_take(struct tri_arena *arena, size_t bytes)
{
    return take(arena->base, &arena->used, bytes);
}

void *tri_arena_take_near(struct tri_arena *arena, size_t bytes)
{
    return take(arena->near, &arena->near_used, bytes);
}

struct tri_entries tri_arena_entries(struct tri_arena *arena, size_t capacity, trib_dtype dtype)
{
    struct tri_entries entries = {
        .capacity = capacity < UINT32_MAX ? (uint32_t)capacity : UINT32_MAX, .dtype = dtype};
    entries.count = tri_arena_take(arena, sizeof *entries.count);
    entries.index = tri_arena_take(arena, capacity * sizeof *entries.index);
    entries.value = tri_arena_take(arena, capacity * trib_dtype_size(dtype));
    return entries;
}

struct tri_entries tri_entries_part(const struct tri_entries *entries, size_t from, size_t n)
{
    return (struct tri_entries){
        .index = entries->index + from,
        .value = (char *)entries->value + from * trib_dtype_size(entries->dtype),
        .capacity = (uint32_t)n,
        .dtype = entries->dtype,
    };
}

static size_t value_offset(uint32_t capacity)
{
    return tri_round_up(sizeof(struct tri_header) + capacity * sizeof(uint32_t), VALUE_ALIGN);
}

size_t tri_packet_bytes(uint32_t capacity, trib_dtype dtype)
{
    return tri_round_up(value_offset(capacity) + capacity * trib_dtype_size(dtype), PACKET_ALIGN);
}

struct tri_packet tri_arena_packets(struct tri_arena *arena, size_t n, uint32_t capacity,
                                    trib_dtype dtype)
{
    return (struct tri_packet){
        .data = tri_arena_take(arena, n * tri_packet_bytes(capacity, dtype)),
        .capacity = capacity,
        .dtype = dtype,
    };
}

/* NULL while measuring. */
static char *packet(const struct tri_packet *packets, size_t i)
{
    if (packets->data == NULL)
        return NULL;
    return packets->data + i * tri_packet_bytes(packets->capacity, packets->dtype);
}

struct tri_header *tri_packet_header(const struct tri_packet *packets, size_t i)
{
    return (struct tri_header *)(void *)packet(packets, i);
}

struct tri_entries tri_packet_entries(const struct tri_packet *packets, size_t i)
{
    struct tri_entries entries = {.capacity = packets->capacity, .dtype = packets->dtype};
    char *data = packet(packets, i);
    if (data == NULL)
        return entries;
    entries.count = &tri_packet_header(packets, i)->count;
    entries.index = (uint32_t *)(void *)(data + sizeof(struct tri_header));
    entries.value = data + value_offset(packets->capacity);
    return entries;
}
