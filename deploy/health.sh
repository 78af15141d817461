#!/bin/bash
# Succeed if this container answers GET PATH on PORT with 200: health.sh PORT PATH. Bash alone, as a check runs every few seconds.
set -eu
{ exec 3<>"/dev/tcp/127.0.0.1/$1"; } 2>/dev/null || exec 3<>"/dev/tcp/$(hostname)/$1"
printf 'GET %s HTTP/1.0\r\n\r\n' "$2" >&3
read -r -t 4 _ code _ <&3
[ "$code" = 200 ] || { cat <&3; exit 1; }
