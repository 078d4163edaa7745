// The least that a hook's client can do: connect, one write, one read, exit. The yardstick of BenchmarkSpawn.
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv) {
	static const char line[] =
		"{\"v\":1,\"op\":\"hook\",\"agent\":\"claude-code\",\"event\":\"Stop\",\"id\":\"0123456789abcdef-1234567-0123456789abcdef\","
		"\"pid\":1234567,\"workspace\":\"/home/somebody/projects/something/deep\"}\n";
	char answer[64];
	struct sockaddr_un a;
	if (argc < 2)
		return 0; // spawn and exit alone
	memset(&a, 0, sizeof a);
	a.sun_family = AF_UNIX;
	strncpy(a.sun_path, argv[1], sizeof a.sun_path - 1);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0)
		return 1;
	if (write(fd, line, sizeof line - 1) != sizeof line - 1)
		return 1;
	return read(fd, answer, sizeof answer) > 0 ? 0 : 1;
}
