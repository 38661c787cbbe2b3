/* The members of the host backend, by file; csrc/backend.h has their contracts. */
#ifndef TRI_HOST_OPS_H
#define TRI_HOST_OPS_H

#include "csrc/backend.h"

/* Of a communicator; also the number of devices. */
enum { TRI_HOST_MAX_RANKS = 64 };

/* memory.c */
trib_status tri_host_alloc(int32_t device, void **out, size_t bytes);
trib_status tri_host_free(int32_t device, void *data);
trib_status tri_host_alloc_pinned(void **out, size_t bytes);
void tri_host_free_pinned(void *data);
trib_status tri_host_copy(int32_t device, void *dst, const void *src, size_t bytes,
                          trib_stream stream);
trib_status tri_host_fetch(int32_t device, void *dst, const void *src, size_t bytes,
                           trib_stream stream);
enum tri_fault tri_host_check_buffer(int32_t device, const void *data, size_t bytes, size_t *found);

/* stream.c */
enum tri_fault tri_host_check_stream(int32_t device, trib_stream stream, size_t *found);
trib_status tri_host_stream_create(int32_t device, trib_stream *out);
trib_status tri_host_stream_wait(int32_t device, trib_stream stream);
trib_status tri_host_stream_query(int32_t device, trib_stream stream, bool *out_done);
trib_status tri_host_stream_submit(int32_t device, void (*function)(void *), void *argument,
                                   trib_stream stream);
trib_status tri_host_stream_destroy(int32_t device, trib_stream stream);

/* event.c */
trib_status tri_host_stream_wait_event(int32_t device, trib_event event, trib_stream stream);
trib_status tri_host_event_create(int32_t device, trib_event *out);
trib_status tri_host_event_record(int32_t device, trib_event event, trib_stream stream);
trib_status tri_host_event_wait(int32_t device, trib_event event);
trib_status tri_host_event_query(int32_t device, trib_event event, bool *out_done);
trib_status tri_host_event_elapsed(int32_t device, trib_event start, trib_event end, float *out_ms);
trib_status tri_host_event_destroy(int32_t device, trib_event event);

/* id.c */
trib_status tri_host_id_create(trib_id *out);
bool tri_host_id_is_mine(const trib_id *id);

/* open.c */
trib_status tri_host_open(struct tri_transport **out, const trib_id *id, int32_t rank, int32_t size,
                          int32_t device, const struct tri_config *config, uint32_t timeout_ms);
trib_status tri_host_open_group(struct tri_transport **out, const int32_t *devices, int32_t size,
                                const struct tri_config *config, uint32_t timeout_ms);
trib_status tri_host_split(struct tri_transport **out, struct tri_transport *parent, int32_t color,
                           int32_t key, const struct tri_config *config, uint32_t timeout_ms);

/* submit.c */
trib_status tri_host_submit(struct tri_transport *transport, void (*function)(void *argument),
                            const void *argument, size_t bytes, trib_stream stream);
/* Exact. */
void tri_host_progress(struct tri_transport *transport, struct tri_progress *out);
trib_status tri_host_close(struct tri_transport *transport, uint32_t timeout_ms);

/* collectives.c */
trib_status tri_host_collective(const struct tri_call *calls, size_t n);

/* list.c */
trib_status tri_host_collective_list(const struct tri_call *calls, size_t n,
                                     const struct tri_slice *slices, const size_t *first);

/* symmetric.c */
extern const struct tri_symmetric_ops tri_host_symmetric;
uint64_t tri_host_symmetric_bytes(const struct tri_transport *self);

#endif
