/* Writing a file as a whole. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/base/file.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/base/process.h"
#include "csrc/base/thread.h"

enum { EXIT_MS = 2000, POLL_NS = 200000, PATH_SIZE = 4096 };

/* To a new file: not into what another thread writes, nor where a link leads. 0 or an errno. */
static int write_all(const char *path, const char *data, size_t bytes)
{
    FILE *file = fopen(path, "wx");
    if (file == NULL)
        return errno;
    const bool written = fwrite(data, 1, bytes, file) == bytes;
    const int error = written ? 0 : errno;
    return fclose(file) != 0 && error == 0 ? errno : error;
}

static bool is_something_else(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && !S_ISREG(found.st_mode);
}

trib_status tri_file_write(const char *path, const char *data, size_t bytes)
{
    static _Atomic uint32_t files;
    char beside[PATH_SIZE];
    int error = ENAMETOOLONG;
    if (is_something_else(path))
        return tri_fail(TRIB_ERR_SYSTEM, "\"%s\" is no regular file; expected one, or a new name",
                        path);
    if (snprintf(beside, sizeof beside, "%s.%ld.%u.part", path, (long)getpid(),
                 (unsigned)atomic_fetch_add(&files, 1)) < (int)sizeof beside) {
        error = write_all(beside, data, bytes);
        if (error == 0 && rename(beside, path) != 0)
            error = errno;
        if (error != 0)
            (void)remove(beside);
    }
    return error == 0 ? TRIB_OK
                      : tri_fail(TRIB_ERR_SYSTEM, "\"%s\" cannot be written: %s", path,
                                 tri_error_text(error).text);
}

struct writing {
    char *data;
    size_t bytes;
    char path[];
};

static _Atomic uint32_t unfinished;

static void *write_and_free(void *argument)
{
    struct writing *writing = argument;
    if (tri_file_write(writing->path, writing->data, writing->bytes) != TRIB_OK)
        tri_log(TRIB_LOG_ERROR, "%s", tri_detail());
    free(writing->data);
    free(writing);
    atomic_fetch_sub(&unfinished, 1);
    return NULL;
}

static void wait_at_exit(void)
{
    const uint64_t deadline = tri_deadline_ns(EXIT_MS);
    while (!tri_process_forked() && atomic_load(&unfinished) > 0 && tri_now_ns() < deadline)
        tri_nap_ns(POLL_NS);
}

static void register_wait(void)
{
    (void)atexit(wait_at_exit);
}

void tri_file_write_later(const char *path, char *data, size_t bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT; /* guards the registration */
    pthread_t thread;
    struct writing *writing = malloc(sizeof *writing + strlen(path) + 1);
    (void)pthread_once(&once, register_wait);
    if (writing == NULL) {
        free(data);
        return;
    }
    writing->data = data;
    writing->bytes = bytes;
    memcpy(writing->path, path, strlen(path) + 1);
    atomic_fetch_add(&unfinished, 1);
    if (tri_thread_start(&thread, write_and_free, writing) == 0)
        (void)pthread_detach(thread);
    else
        (void)write_and_free(writing);
}
