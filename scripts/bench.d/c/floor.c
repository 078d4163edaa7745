/* The least that a client of a daemon can do: connect, write 200 bytes, read an answer, exit. usage: floor SOCKET [LINE] */
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv) {
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	char buf[4096];
	size_t n = 200;
	if (argc < 2 || strlen(argv[1]) >= sizeof a.sun_path)
		return 2;
	strcpy(a.sun_path, argv[1]);
	memset(buf, 'x', n);
	if (argc > 2) {
		n = strlen(argv[2]);
		if (n >= sizeof buf)
			return 2;
		memcpy(buf, argv[2], n);
		buf[n++] = '\n';
	}
	int s = socket(AF_UNIX, SOCK_STREAM, 0);
	if (s < 0 || connect(s, (struct sockaddr *)&a, sizeof a) != 0)
		return 1;
	if (write(s, buf, n) != (ssize_t)n || read(s, buf, sizeof buf) < 20)
		return 1;
	return 0;
}
