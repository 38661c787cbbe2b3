/* Writing a file as a whole. */
#ifndef TRI_BASE_FILE_H
#define TRI_BASE_FILE_H

#include <stddef.h>

#include "csrc/base/status.h"

/* Readers see the old file or the new one. TRIB_ERR_SYSTEM; also for what is no regular file, which
 * would be replaced: a pipe, a device. */
trib_status tri_file_write(const char *path, const char *data, size_t bytes);

/* The same on a thread of its own, because a file system may take long: logs a failure. Frees
 * `data`. An exit waits for it, at most two seconds. */
void tri_file_write_later(const char *path, char *data, size_t bytes);

#endif
