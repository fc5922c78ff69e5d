#!/usr/bin/env bash
# Brings one site of one replica up, or back to its first state, and tells it its address.
#
#   HOST=sites.example ./site.sh a.env shopping          start it, where it does not run
#   HOST=sites.example ./site.sh a.env shopping --reset  throw its container away first
#
# a.env holds the ports of the replica (SHOPPING_PORT=7770 and so on); its name is the project's.
# PATIENCE: seconds that each step is tried again for (600). Needs docker and curl.
set -euo pipefail
env_file=$(realpath "$1") site=$2 again=${3:-}
cd "$(dirname "$0")"
: "${HOST:?set HOST to the name or address by which the sites are reached}" "${PATIENCE:=600}"
set -a
# shellcheck source=/dev/null
source "$env_file"
set +a
compose=(docker compose --env-file "$env_file" -p "$(basename "$env_file" .env)")
port_variable=$(tr '[:lower:]' '[:upper:]' <<<"$site")_PORT
port=${!port_variable:-}
: "${port:?$env_file does not set $port_variable}"
in_it() { "${compose[@]}" exec -T "$site" "$@"; }

# Tries a command until it succeeds; prints what it said last and fails after PATIENCE seconds.
patiently() {
  local end=$((SECONDS + PATIENCE)) said
  until said=$("$@" 2>&1 </dev/null); do
    if ((SECONDS >= end)); then
      printf '%s: gave up after %s s: %s\n%s\n' "$site" "$PATIENCE" "$*" "$said" >&2
      return 1
    fi
    sleep 3
  done
}

# Fetches a page by the address that the site believes it has.
page() {
  curl -sS --fail --max-time 300 --output /dev/null --header "Host: $HOST:$port" \
    "http://127.0.0.1:$port$1"
}

magento() {
  local base="http://$HOST:$port" bin=/var/www/magento2/bin/magento
  patiently in_it mysql -u magentouser -pMyPassword magentodb -e 'SELECT 1'
  patiently in_it $bin setup:store-config:set --base-url="$base"
  in_it mysql -u magentouser -pMyPassword magentodb \
    -e "UPDATE core_config_data SET value='$base/' WHERE path = 'web/secure/base_url';"
  # No new password asked for, a log-in lasts a day, and does not end the account's other sessions.
  if [[ $site == shopping_admin ]]; then
    in_it $bin config:set admin/security/password_is_forced 0
    in_it $bin config:set admin/security/password_lifetime 0
    in_it $bin config:set admin/security/session_lifetime 86400
    in_it $bin config:set admin/security/admin_account_sharing 1
  else # an order does not index the catalog again
    in_it $bin indexer:set-mode schedule
  fi
  in_it $bin cache:flush
  # The first page after a flush takes minutes.
  if [[ $site == shopping_admin ]]; then
    patiently page /admin
  else
    patiently page /
    patiently page /customer/account/login/
  fi
}

forum() {
  # Posts and comments come faster from many agents than from a person.
  for kind in Comment Submission User; do
    patiently in_it sed -i '/@RateLimit/,/)/d' "/var/www/html/src/DataObject/${kind}Data.php"
  done
  in_it bin/console cache:clear --env=prod
  # 64 episodes at once; a worker takes about 50 MB.
  in_it sed -i -e 's/^pm.max_children = .*/pm.max_children = 64/' \
    -e 's/^pm.start_servers = .*/pm.start_servers = 16/' \
    -e 's/^pm.min_spare_servers = .*/pm.min_spare_servers = 8/' \
    -e 's/^pm.max_spare_servers = .*/pm.max_spare_servers = 32/' /usr/local/etc/php-fpm.d/www.conf
  patiently in_it supervisorctl restart php-fpm
  patiently page /
}

gitlab() {
  local data=/var/opt/gitlab/postgresql/data
  patiently in_it gitlab-ctl status
  in_it sed -i -e "s|^external_url.*|external_url 'http://$HOST:$port'|" \
    -e '/^# set by site.sh$/,$d' /etc/gitlab/gitlab.rb
  in_it tee -a /etc/gitlab/gitlab.rb >/dev/null <<END
# set by site.sh
puma['worker_processes'] = 4
postgresql['max_connections'] = 2000
END
  gitlab_up && return
  # The image's database was not shut down: it may refuse to start, and every page is a 502.
  echo "$site: its database is repaired" >&2
  in_it gitlab-ctl stop || true # fails where a service does not stop in time
  in_it rm -f $data/postmaster.pid
  "${compose[@]}" exec -T -u gitlab-psql "$site" /opt/gitlab/embedded/bin/pg_resetwal -f $data
  in_it gitlab-ctl start || true # as above
  gitlab_up
}

# Its services run before it can be configured, and it is configured before it answers.
gitlab_up() {
  patiently in_it gitlab-ctl reconfigure && patiently in_it gitlab-ctl restart &&
    patiently page /users/sign_in
}

"${compose[@]}" up -d --no-deps ${again:+--force-recreate --renew-anon-volumes} "$site"
case $site in
  shopping | shopping_admin) magento ;;
  reddit) forum ;;
  gitlab) gitlab ;;
esac
echo "$site: http://$HOST:$port"
