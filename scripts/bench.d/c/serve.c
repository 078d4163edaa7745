/* The least daemon: answers 20 bytes to whatever one read brings. usage: serve SOCKET */
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv) {
	static const char answer[] = "{\"ok\":true,\"seq\":1}\n";
	static char buf[1 << 16];
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	if (argc != 2 || strlen(argv[1]) >= sizeof a.sun_path)
		return 2;
	strcpy(a.sun_path, argv[1]);
	int l = socket(AF_UNIX, SOCK_STREAM, 0), e = epoll_create1(0);
	if (bind(l, (struct sockaddr *)&a, sizeof a) != 0 || listen(l, 128) != 0)
		return 1;
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = l}, got[64];
	epoll_ctl(e, EPOLL_CTL_ADD, l, &ev);
	for (;;) {
		int n = epoll_wait(e, got, 64, -1);
		for (int i = 0; i < n; i++) {
			int fd = got[i].data.fd;
			if (fd == l) {
				int c = accept(l, 0, 0);
				if (c >= 0) {
					ev.data.fd = c;
					epoll_ctl(e, EPOLL_CTL_ADD, c, &ev);
				}
			} else if (read(fd, buf, sizeof buf) <= 0 || write(fd, answer, 20) != 20) {
				close(fd);
			}
		}
	}
}
