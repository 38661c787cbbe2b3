/* Opens, connects and accepts the sockets between ranks. All of them are non-blocking and closed by
 * exec. Where a file descriptor is returned, a negative number is an errno. */
#ifndef TRI_PEERS_SOCKET_H
#define TRI_PEERS_SOCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "csrc/peers/address.h"

/* Listen; what peers need to connect goes into `own`. A Unix socket gets a random name in the
 * abstract namespace: no file that could remain. TCP listens on every interface, or with
 * `loopback` on that alone, at own->port; 0: at any that is free. */
int tri_socket_listen_unix(struct tri_peer_address *own);
int tri_socket_listen_tcp(struct tri_peer_address *own, bool loopback);

/* Begin to connect; the socket becomes writable when that has ended, and tri_socket_error says how.
 * -EAGAIN: the peer has too many connections waiting; try again. */
int tri_socket_connect_unix(const struct tri_peer_address *to);
int tri_socket_connect_tcp(const struct tri_peer_address *to, int which);
int tri_socket_error(int fd); /* 0 or an errno */

/* -EAGAIN: none waits. -ECONNABORTED: that one is gone. */
int tri_socket_accept(int listener);
/* Does the process at the other end of a Unix socket have this process's effective user? */
bool tri_socket_same_user(int fd);

#endif
