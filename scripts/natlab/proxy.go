//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// proxyPort is where the proxy of a network listens, on its router.
const proxyPort = 3128

// serveProxy runs an HTTP proxy that knows CONNECT alone, in the namespace, until ctx ends. It returns when it listens.
func serveProxy(ctx context.Context, space, ip string, group *sync.WaitGroup) error {
	var l net.Listener
	err := enter(space, func() (err error) {
		l, err = net.Listen("tcp4", fmt.Sprintf("%s:%d", ip, proxyPort))
		return err
	})
	if err != nil {
		return fmt.Errorf("start proxy: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	group.Go(func() {
		defer stop()
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			group.Go(func() { tunnel(ctx, space, conn) })
		}
	})
	return nil
}

// tunnel serves one connection to the proxy.
func tunnel(ctx context.Context, space string, in net.Conn) {
	defer in.Close()
	stop := context.AfterFunc(ctx, func() { _ = in.Close() })
	defer stop()
	_ = in.SetReadDeadline(time.Now().Add(10 * time.Second))
	r := bufio.NewReader(in)
	req, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	_ = in.SetReadDeadline(time.Time{})
	answer := func(status string) { _, _ = io.WriteString(in, "HTTP/1.1 "+status+"\r\n\r\n") }
	if req.Method != http.MethodConnect {
		answer("405 Method Not Allowed")
		return
	}
	var out net.Conn
	err = enter(space, func() (err error) {
		out, err = (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp4", req.Host)
		return err
	})
	if err != nil {
		answer("502 Bad Gateway")
		return
	}
	defer out.Close()
	answer("200 Connection established")
	both := make(chan struct{})
	go func() {
		defer close(both)
		pump(out, r)
	}()
	pump(in, out)
	<-both
}

// pump copies until the source ends, and tells the other end.
func pump(to io.Writer, from io.Reader) {
	_, err := io.Copy(to, from)
	if c, ok := to.(interface{ CloseWrite() error }); ok {
		err = errors.Join(err, c.CloseWrite())
	}
	_ = err // an end by either side, which the other sees
}
