/* SPDX-License-Identifier: MIT */
#include "src/trace/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "src/base/log.h"
#include "src/trace/metrics.h"

#define REQUEST_BYTES 8192
#define PATIENCE_MS 1000

static _Atomic int listener = -1, client = -1;

/* Out of the variable before it is closed: a child must not close a number
 * that means something else by then. */
static void drop(_Atomic int *fd)
{
	int old = atomic_exchange(fd, -1);

	if (old >= 0)
		close(old);
}

static void forked(void)
{
	drop(&client);
	drop(&listener);
}

int hs_listen_open(uint16_t port)
{
	static atomic_bool registered;
	const struct sockaddr_in address = {.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int error, on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	/* Connections of an earlier process that linger do not matter; one that
	 * listens does. */
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
		bind(fd, (const struct sockaddr *)&address, sizeof(address)) || listen(fd, 8)) {
		error = errno;
		hs_warn("HISPARSE_METRICS=%u: no metrics on this port (%s); a file name with %%p "
			"gives every process its own",
			port, strerror(error));
		if (fd >= 0)
			close(fd);
		return -error;
	}
	if (!atomic_exchange(&registered, true))
		pthread_atfork(NULL, NULL, forked);
	atomic_store(&listener, fd);
	return 0;
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static bool wait_for(int fd, short events, int64_t until)
{
	struct pollfd poll_fd = {.fd = fd, .events = events};
	int64_t left = until - now_ms();

	return left > 0 && poll(&poll_fd, 1, (int)left) > 0;
}

static void send_all(int fd, const char *text, size_t length, int64_t until)
{
	while (length && wait_for(fd, POLLOUT, until)) {
		ssize_t n = send(fd, text, length, MSG_NOSIGNAL);

		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return;
		if (n > 0) {
			text += n;
			length -= (size_t)n;
		}
	}
}

/* The head of a request, up to its blank line. False: there will be none. */
static bool receive(int fd, char request[REQUEST_BYTES], int64_t until)
{
	size_t length = 0;

	while (length < REQUEST_BYTES - 1 && wait_for(fd, POLLIN, until)) {
		ssize_t n = recv(fd, request + length, REQUEST_BYTES - 1 - length, 0);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n <= 0)
			return false;
		length += (size_t)n;
		request[length] = '\0';
		if (strstr(request, "\r\n\r\n") || strstr(request, "\n\n"))
			return true;
	}
	return false;
}

/* The status of a request; metrics for 200. */
static const char *judge(const char *request)
{
	const char *path = request + strcspn(request, " \r\n");
	size_t length;

	if (*path != ' ' || path == request)
		return "400 Bad Request";
	length = strcspn(++path, " \r\n");
	if (path[length] != ' ' || strncmp(path + length, " HTTP/1.", 8))
		return "400 Bad Request";
	if (strncmp(request, "GET ", 4))
		return "405 Method Not Allowed";
	length = strcspn(path, "? ");
	return length == 8 && !strncmp(path, "/metrics", 8) ? "200 OK" : "404 Not Found";
}

static void answer(int fd)
{
	const int64_t until = now_ms() + PATIENCE_MS;
	char request[REQUEST_BYTES], head[256], *text = NULL;
	const char *status = "400 Bad Request";
	size_t length = 0;

	if (receive(fd, request, until))
		status = judge(request);
	if (*status == '2' && hs_metrics_text(&text, &length))
		status = "500 Internal Server Error";
	if (!text && asprintf(&text, "%s\n", status) > 0)
		length = strlen(text);
	snprintf(head, sizeof(head),
		"HTTP/1.0 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
		"Content-Length: %zu\r\nConnection: close\r\n%s\r\n",
		status, length, strncmp(status, "405", 3) ? "" : "Allow: GET\r\n");
	send_all(fd, head, strlen(head), until);
	if (text)
		send_all(fd, text, length, until);
	free(text);
}

int hs_listen_serve(void)
{
	int fd = atomic_load(&listener);

	if (fd < 0)
		return -EBADF;
	if (!wait_for(fd, POLLIN, now_ms() + PATIENCE_MS))
		return 0;
	fd = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0) {
		int error = errno;

		/* Out of files, and the like, pass; so does a client that left. */
		if (error == EBADF || error == EINVAL || error == ENOTSOCK) {
			atomic_store(&listener, -1);
			return -error;
		}
		usleep(PATIENCE_MS * 100);
		return 0;
	}
	atomic_store(&client, fd);
	answer(fd);
	shutdown(fd, SHUT_WR);
	drop(&client);
	return 0;
}
