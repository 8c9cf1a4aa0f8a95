/* A library to be preloaded (LD_PRELOAD) that makes one call of one function fail, as it does when
 * memory or descriptors are used up:
 *
 *   OSPREY_FAIL=accept4 OSPREY_FAIL_NTH=3 OSPREY_FAIL_REPORT=/tmp/report LD_PRELOAD=… kvserver …
 *
 * The third call of accept4 in that process fails with EMFILE, and the report gets a line, by which
 * one knows that the program got there. Allocations count from 64 KiB on; "malloc" is all of them.
 * Calls that libibverbs answers from a table of the device (ibv_post_send, ibv_post_recv,
 * ibv_poll_cq, ibv_req_notify_cq are inline functions) are exchanged in that table when a queue pair
 * or a completion queue is made. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LARGE_BYTES (64 * 1024)

static long calls; /* of the function that is to fail */

static int is_due(const char *name) {
  const char *chosen = getenv("OSPREY_FAIL");
  if (chosen == NULL || strcmp(chosen, name) != 0) return 0;
  const char *nth = getenv("OSPREY_FAIL_NTH");
  if (nth == NULL || __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) != atol(nth)) return 0;
  const char *report = getenv("OSPREY_FAIL_REPORT");
  if (report == NULL) return 1;
  const long fd = syscall(SYS_openat, AT_FDCWD, report, O_WRONLY | O_CREAT | O_APPEND, 0600);
  syscall(SYS_write, fd, name, strlen(name));
  syscall(SYS_write, fd, "\n", 1);
  syscall(SYS_close, fd);
  return 1;
}

static void *real_of(const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  if (found == NULL) abort();
  return found;
}

/* `result` when it fails, with errno `error`. */
#define FAILS(type, name, parameters, arguments, result, error) \
  type name parameters {                                        \
    static type(*real) parameters;                              \
    if (real == NULL) real = real_of(#name);                    \
    if (is_due(#name)) {                                        \
      errno = error;                                            \
      return result;                                            \
    }                                                           \
    return real arguments;                                      \
  }

/* Of functions that return the error itself. */
#define FAILS_WITH(name, parameters, arguments, error) \
  int name parameters {                                \
    static int(*real) parameters;                      \
    if (real == NULL) real = real_of(#name);           \
    return is_due(#name) ? error : real arguments;     \
  }

/* ---- System calls ---------------------------------------------------------------------------- */

FAILS(int, socket, (int domain, int type, int protocol), (domain, type, protocol), -1, EMFILE)
FAILS(int, bind, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), -1, ENOMEM)
FAILS(int, listen, (int fd, int n), (fd, n), -1, ENOMEM)
FAILS(int, connect, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), -1, ECONNREFUSED)
FAILS(int, accept4, (int fd, struct sockaddr *a, socklen_t *n, int f), (fd, a, n, f), -1, EMFILE)
FAILS(int, getsockopt, (int fd, int l, int o, void *v, socklen_t *n), (fd, l, o, v, n), -1, ENOBUFS)
FAILS(ssize_t, sendmsg, (int fd, const struct msghdr *m, int f), (fd, m, f), -1, ENOBUFS)
FAILS(ssize_t, recvmsg, (int fd, struct msghdr *m, int f), (fd, m, f), -1, ENOMEM)
FAILS(ssize_t, sendto,
      (int fd, const void *d, size_t n, int f, const struct sockaddr *a, socklen_t m),
      (fd, d, n, f, a, m), -1, ENOBUFS)
FAILS(int, memfd_create, (const char *name, unsigned flags), (name, flags), -1, EMFILE)
FAILS(int, ftruncate, (int fd, off_t length), (fd, length), -1, ENOSPC)
FAILS(int, fallocate, (int fd, int mode, off_t o, off_t n), (fd, mode, o, n), -1, ENOSPC)
FAILS_WITH(posix_fallocate, (int fd, off_t o, off_t n), (fd, o, n), ENOSPC)
FAILS(void *, mmap, (void *at, size_t n, int p, int f, int fd, off_t o), (at, n, p, f, fd, o),
      MAP_FAILED, ENOMEM)
FAILS(int, eventfd, (unsigned value, int flags), (value, flags), -1, EMFILE)
FAILS(int, epoll_create1, (int flags), (flags), -1, EMFILE)
FAILS(int, epoll_ctl, (int e, int o, int fd, struct epoll_event *v), (e, o, fd, v), -1, ENOMEM)
FAILS(int, epoll_wait, (int e, struct epoll_event *v, int n, int t), (e, v, n, t), -1, EINTR)
FAILS(int, poll, (struct pollfd *fds, nfds_t n, int timeout), (fds, n, timeout), -1, ENOMEM)
FAILS(int, ppoll, (struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *s),
      (fds, n, t, s), -1, ENOMEM)
FAILS(ssize_t, read, (int fd, void *to, size_t n), (fd, to, n), -1, EIO)
FAILS(ssize_t, write, (int fd, const void *from, size_t n), (fd, from, n), -1, ENOSPC)
FAILS(FILE *, fopen, (const char *path, const char *mode), (path, mode), NULL, EMFILE)
FAILS(int, fsync, (int fd), (fd), -1, ENOSPC)
FAILS(int, flock, (int fd, int operation), (fd, operation), -1, ENOLCK)
FAILS(int, fstat, (int fd, struct stat *to), (fd, to), -1, ENOMEM)
FAILS(ssize_t, pread, (int fd, void *to, size_t n, off_t o), (fd, to, n, o), -1, ENOMEM)
FAILS(int, stat, (const char *path, struct stat *to), (path, to), -1, ENOMEM)
FAILS(int, lstat, (const char *path, struct stat *to), (path, to), -1, ENOMEM)
FAILS(int, chmod, (const char *path, mode_t mode), (path, mode), -1, EROFS)
FAILS(int, fchmod, (int fd, mode_t mode), (fd, mode), -1, EROFS)
FAILS(int, rename, (const char *from, const char *to), (from, to), -1, ENOSPC)
FAILS(int, unlink, (const char *path), (path), -1, EROFS)
FAILS(int, getrlimit, (__rlimit_resource_t what, struct rlimit *to), (what, to), -1, EINVAL)
FAILS(int, setrlimit, (__rlimit_resource_t what, const struct rlimit *to), (what, to), -1, EPERM)
FAILS(ssize_t, getrandom, (void *to, size_t n, unsigned flags), (to, n, flags), -1, EINTR)
FAILS_WITH(pthread_create,
           (pthread_t * thread, const pthread_attr_t *how, void *(*run)(void *), void *with),
           (thread, how, run, with), EAGAIN)

/* fallocate is called where the kernel does not know MADV_POPULATE_WRITE: then as in an older one. */
int madvise(void *at, size_t n, int advice) {
  static int (*real)(void *, size_t, int);
  if (real == NULL) real = (int (*)(void *, size_t, int))real_of("madvise");
  const char *chosen = getenv("OSPREY_FAIL");
  const int is_older = chosen != NULL && strcmp(chosen, "fallocate") == 0;
  if (is_older && advice == MADV_POPULATE_WRITE) {
    errno = EINVAL;
    return -1;
  }
  if (is_due("madvise")) {
    errno = ENOMEM;
    return -1;
  }
  return real(at, n, advice);
}

int open(const char *path, int flags, ...) {
  static int (*real)(const char *, int, ...);
  if (real == NULL) real = (int (*)(const char *, int, ...))real_of("open");
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  if (is_due("open")) {
    errno = EMFILE;
    return -1;
  }
  return real(path, flags, mode);
}

/* Only the seals: nothing else that is asked for here can fail. */
int fcntl(int fd, int command, ...) {
  static int (*real)(int, int, ...);
  if (real == NULL) real = (int (*)(int, int, ...))real_of("fcntl");
  va_list more;
  va_start(more, command);
  const long argument = va_arg(more, long);
  va_end(more);
  if ((command == F_ADD_SEALS || command == F_GET_SEALS) && is_due("fcntl")) {
    errno = EPERM;
    return -1;
  }
  return real(fd, command, argument);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static int memory_is_out(size_t bytes) {
  if (bytes < LARGE_BYTES || !is_due("malloc")) return 0;
  errno = ENOMEM;
  return 1;
}

void *malloc(size_t n) { return memory_is_out(n) ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t m) { return memory_is_out(n * m) ? NULL : __libc_calloc(n, m); }
void *realloc(void *at, size_t n) { return memory_is_out(n) ? NULL : __libc_realloc(at, n); }
void *aligned_alloc(size_t a, size_t n) { return memory_is_out(n) ? NULL : __libc_memalign(a, n); }
int posix_memalign(void **to, size_t a, size_t n) {
  if (memory_is_out(n)) return ENOMEM;
  *to = __libc_memalign(a, n);
  return *to == NULL ? ENOMEM : 0;
}

/* ---- Verbs ----------------------------------------------------------------------------------- */

FAILS(struct ibv_device **, ibv_get_device_list, (int *n), (n), NULL, ENOMEM)
FAILS(struct ibv_context **, rdma_get_devices, (int *n), (n), NULL, ENOMEM)
FAILS(struct ibv_context *, ibv_open_device, (struct ibv_device * d), (d), NULL, EMFILE)
FAILS(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context * c), (c), NULL, ENOMEM)
FAILS(struct ibv_comp_channel *, ibv_create_comp_channel, (struct ibv_context * c), (c), NULL,
      EMFILE)
FAILS(struct ibv_mr *, ibv_reg_mr_iova2,
      (struct ibv_pd * pd, void *at, size_t n, uint64_t iova, unsigned access),
      (pd, at, n, iova, access), NULL, ENOMEM)
FAILS_WITH(ibv_modify_qp, (struct ibv_qp * qp, struct ibv_qp_attr *a, int mask), (qp, a, mask),
           ENOMEM)
#undef ibv_query_port
FAILS_WITH(ibv_query_port, (struct ibv_context * c, uint8_t port, struct _compat_ibv_port_attr *a),
           (c, port, a), ENOMEM)
FAILS_WITH(ibv_query_device, (struct ibv_context * c, struct ibv_device_attr *a), (c, a), ENOMEM)
FAILS(ssize_t, _ibv_query_gid_table,
      (struct ibv_context * c, struct ibv_gid_entry *to, size_t n, uint32_t flags, size_t bytes),
      (c, to, n, flags, bytes), -ENOMEM, ENOMEM)
FAILS(int, ibv_get_cq_event, (struct ibv_comp_channel * c, struct ibv_cq **q, void **x), (c, q, x),
      -1, EAGAIN)
FAILS(int, ibv_get_async_event, (struct ibv_context * c, struct ibv_async_event *e), (c, e), -1,
      EAGAIN)
#undef ibv_reg_mr
FAILS(struct ibv_mr *, ibv_reg_mr, (struct ibv_pd * pd, void *at, size_t n, int access),
      (pd, at, n, access), NULL, ENOMEM)

FAILS(struct rdma_event_channel *, rdma_create_event_channel, (void), (), NULL, EMFILE)
FAILS(int, rdma_create_id,
      (struct rdma_event_channel * c, struct rdma_cm_id **id, void *x, enum rdma_port_space s),
      (c, id, x, s), -1, ENOMEM)
FAILS(int, rdma_bind_addr, (struct rdma_cm_id * id, struct sockaddr *a), (id, a), -1, ENOMEM)
FAILS(int, rdma_listen, (struct rdma_cm_id * id, int n), (id, n), -1, ENOMEM)
FAILS(int, rdma_getaddrinfo,
      (const char *node, const char *service, const struct rdma_addrinfo *hints,
       struct rdma_addrinfo **to),
      (node, service, hints, to), EAI_MEMORY, ENOMEM)
FAILS(int, rdma_resolve_addr,
      (struct rdma_cm_id * id, struct sockaddr *from, struct sockaddr *to, int ms),
      (id, from, to, ms), -1, ENOMEM)
FAILS(int, rdma_resolve_route, (struct rdma_cm_id * id, int ms), (id, ms), -1, ENOMEM)
FAILS(int, rdma_connect, (struct rdma_cm_id * id, struct rdma_conn_param *p), (id, p), -1, ENOMEM)
FAILS(int, rdma_accept, (struct rdma_cm_id * id, struct rdma_conn_param *p), (id, p), -1, ENOMEM)
FAILS(int, rdma_reject, (struct rdma_cm_id * id, const void *d, uint8_t n), (id, d, n), -1, ENOMEM)
FAILS(int, rdma_establish, (struct rdma_cm_id * id), (id), -1, ENOMEM)
FAILS(int, rdma_disconnect, (struct rdma_cm_id * id), (id), -1, ENOMEM)
FAILS(int, rdma_get_cm_event, (struct rdma_event_channel * c, struct rdma_cm_event **e), (c, e), -1,
      ENOMEM)
FAILS(int, rdma_init_qp_attr, (struct rdma_cm_id * id, struct ibv_qp_attr *a, int *mask),
      (id, a, mask), -1, ENOMEM)
FAILS(int, rdma_set_option, (struct rdma_cm_id * id, int level, int name, void *v, size_t n),
      (id, level, name, v, n), -1, ENOMEM)
FAILS(int, rdma_migrate_id, (struct rdma_cm_id * id, struct rdma_event_channel *c), (id, c), -1,
      ENOMEM)

/* What the device does. */
static struct ibv_context_ops device;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
  if (!is_due("ibv_post_send")) return device.post_send(qp, wr, bad);
  *bad = wr;
  return ENOMEM;
}
static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
  if (!is_due("ibv_post_recv")) return device.post_recv(qp, wr, bad);
  *bad = wr;
  return ENOMEM;
}
static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *to) {
  return is_due("ibv_poll_cq") ? -1 : device.poll_cq(cq, n, to);
}
static int req_notify_cq(struct ibv_cq *cq, int solicited) {
  return is_due("ibv_req_notify_cq") ? ENOMEM : device.req_notify_cq(cq, solicited);
}

static void exchange(struct ibv_context *context) {
  if (context->ops.post_send == post_send) return;
  device = context->ops;
  context->ops.post_send = post_send;
  context->ops.post_recv = post_recv;
  context->ops.poll_cq = poll_cq;
  context->ops.req_notify_cq = req_notify_cq;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *c, int n, void *x, struct ibv_comp_channel *ch,
                             int vector) {
  static struct ibv_cq *(*real)(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
  if (real == NULL) real = real_of("ibv_create_cq");
  exchange(c);
  if (is_due("ibv_create_cq")) {
    errno = ENOMEM;
    return NULL;
  }
  return real(c, n, x, ch, vector);
}

/* All attempts of one creation: a smaller queue pair is asked for when one is refused. */
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a) {
  static struct ibv_qp *(*real)(struct ibv_pd *, struct ibv_qp_init_attr *);
  static __thread struct ibv_pd *failing;
  if (real == NULL) real = real_of("ibv_create_qp");
  const int again = failing == pd && a->cap.max_inline_data < 256;
  failing = NULL;
  if (again || is_due("ibv_create_qp")) {
    failing = pd;
    errno = ENOMEM;
    return NULL;
  }
  return real(pd, a);
}
