/* Ids of the host backend: valid in this process, once. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/host/id.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "csrc/base/status.h"
#include "csrc/host/host.h"

/* What the bytes of an id say; those that follow are 0. The number counts the ids of this process,
 * so that a bit for each of the last ID_WINDOW suffices to know which have served; older ones are
 * refused. */
struct name {
    char magic[8];
    uint64_t process;
    uint64_t number;
};

enum { ID_WINDOW = 1 << 16 };

static const char magic[8] = {'T', 'R', 'I', 'B', 'H', 'O', 'S', 'T'};

/* Guards the three below. Held for a few instructions. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t process; /* tells this process from others; 0 before the first id */
static uint64_t ids_made;
static uint8_t has_served[ID_WINDOW / 8];

static uint64_t mark_process(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return (time ^ (uint64_t)getpid() << 40 ^ (uint64_t)(uintptr_t)&lock) | 1;
}

static struct name read_name(const trib_id *id)
{
    struct name name;
    memcpy(&name, id->bytes, sizeof name);
    return name;
}

static uint8_t *byte_of(const struct name *name)
{
    return &has_served[name->number % ID_WINDOW / 8];
}

static uint8_t bit_of(const struct name *name)
{
    return (uint8_t)(1u << name->number % 8);
}

trib_status tri_host_id_create(trib_id *out)
{
    struct name name;
    memset(out, 0, sizeof *out);
    memcpy(name.magic, magic, sizeof magic);
    pthread_mutex_lock(&lock);
    if (process == 0)
        process = mark_process();
    name.process = process;
    name.number = ids_made++;
    *byte_of(&name) &= (uint8_t)~bit_of(&name);
    pthread_mutex_unlock(&lock);
    memcpy(out->bytes, &name, sizeof name);
    return TRIB_OK;
}

bool tri_host_id_is_mine(const trib_id *id)
{
    return memcmp(id->bytes, magic, sizeof magic) == 0;
}

trib_status tri_host_id_check(const trib_id *id)
{
    const struct name name = read_name(id);
    for (size_t i = sizeof name; i < sizeof id->bytes; i++)
        if (id->bytes[i] != 0)
            return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                            "comm_create: byte %zu of the id is not as it was made; pass the 128 "
                            "bytes of a trib_id_create unchanged",
                            i);
    pthread_mutex_lock(&lock);
    const bool made_here = name.process == process && name.number < ids_made;
    const bool fresh = made_here && ids_made - name.number <= ID_WINDOW &&
                       (*byte_of(&name) & bit_of(&name)) == 0;
    pthread_mutex_unlock(&lock);
    if (!made_here)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "comm_create: the id was not made in this process; ranks of the host "
                        "backend are threads of one process and share an id that it made");
    if (!fresh)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "comm_create: the id has served already; make one with trib_id_create for "
                        "every communicator");
    return TRIB_OK;
}

void tri_host_id_consume(const trib_id *id)
{
    const struct name name = read_name(id);
    pthread_mutex_lock(&lock);
    if (ids_made - name.number <= ID_WINDOW)
        *byte_of(&name) |= bit_of(&name);
    pthread_mutex_unlock(&lock);
}
