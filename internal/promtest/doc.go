// Package promtest holds what is tested about deploy/prometheus and
// deploy/grafana: that each query of a panel and of an alert asks for metrics
// and labels that Drydock's programs really have.
//
// Against a scrape this runs everywhere. Where DRYDOCK_PROMETHEUS names a folder
// with prometheus and promtool (scripts/test-prometheus.sh gets them), the real
// programs check the same files, scrape a program, and answer each query.
package promtest
