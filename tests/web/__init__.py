"""The web server, over real sockets on the loopback interface."""
