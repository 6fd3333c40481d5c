{{- /* An object of the base with the values in it, or nothing. Takes the root and the object. */ -}}
{{- define "kvscope.object" }}
  {{- $root := index . 0 }}
  {{- $object := index . 1 }}
  {{- $values := $root.Values }}
  {{- $labels := merge (dict "app.kubernetes.io/managed-by" $root.Release.Service) $values.labels (omit $object.metadata.labels "release" "grafana_dashboard") }}
  {{- $wanted := false }}
  {{- $places := list $root.Release.Namespace }}
  {{- if eq $object.kind "ConfigMap" }}
    {{- $wanted = $values.dashboards.enabled }}
    {{- $_ := set $labels $values.dashboards.label $values.dashboards.labelValue }}
    {{- $_ := set $object.metadata.annotations "grafana_folder" $values.dashboards.folder }}
  {{- else if eq $object.kind "NetworkPolicy" }}
    {{- $policy := $values.networkPolicy }}
    {{- $isOthers := hasSuffix "-other-ports" $object.metadata.name }}
    {{- $wanted = and $policy.enabled (or $policy.openOtherPorts (not $isOthers)) }}
    {{- include (ternary "kvscope.otherPorts" "kvscope.sources" $isOthers) (list $policy $object) }}
    {{- if $wanted }}
      {{- $places = include "kvscope.podNamespaces" $root | splitList "," }}
    {{- end }}
  {{- else }}
    {{- if $values.release }}
      {{- $_ := set $labels "release" $values.release }}
    {{- end }}
    {{- if eq $object.kind "PrometheusRule" }}
      {{- if and $values.rules.groups (eq $object.metadata.name "kvscope") }}
        {{- $_ := set $object.spec "groups" $values.rules.groups }}
      {{- end }}
      {{- include "kvscope.links" (list $values.grafanaUrl $object) }}
      {{- $server := trimPrefix "kvscope-" $object.metadata.name }}
      {{- if hasKey $values.otherServers $server }}
        {{- $settings := index $values.otherServers $server }}
        {{- $wanted = $settings.rules }}
        {{- include "kvscope.job" (list $server $settings.job $object) }}
      {{- else }}
        {{- $wanted = $values.rules.enabled }}
        {{- include "kvscope.edits" (list $values.rules $object) }}
      {{- end }}
    {{- else if eq $object.kind "AlertmanagerConfig" }}
      {{- $wanted = $values.alertmanagerConfig.enabled }}
    {{- else }}
      {{- $wanted = ternary $values.podMonitor.enabled $values.serviceMonitor.enabled (eq $object.kind "PodMonitor") }}
      {{- include "kvscope.scrape" (list $root $object) }}
    {{- end }}
  {{- end }}
  {{- $_ := set $object.metadata "labels" $labels }}
  {{- if $wanted }}
    {{- range $place := $places }}
      {{- $_ := set $object.metadata "namespace" $place }}
---
{{ toYaml $object }}
    {{- end }}
  {{- end }}
{{- end }}

{{- /* Puts Grafana's address before links that have none. */ -}}
{{- define "kvscope.links" }}
  {{- $grafana := index . 0 }}
  {{- range $group := (index . 1).spec.groups }}
    {{- range $rule := $group.rules }}
      {{- if and $rule.annotations (hasPrefix "/" (default "" $rule.annotations.dashboard_url)) }}
        {{- $_ := set $rule.annotations "dashboard_url" (print $grafana $rule.annotations.dashboard_url) }}
      {{- end }}
    {{- end }}
  {{- end }}
{{- end }}

{{- /* Has the rules for a kind of server ask for another job than the one of its name. */ -}}
{{- define "kvscope.job" }}
  {{- $server := index . 0 }}
  {{- $job := index . 1 }}
  {{- range $group := (index . 2).spec.groups }}
    {{- range $rule := $group.rules }}
      {{- $_ := set $rule "expr" ($rule.expr | replace (printf "job=~%q" $server) (printf "job=~%q" $job)) }}
      {{- if $rule.annotations }}
        {{- $_ := set $rule.annotations "description" ($rule.annotations.description | replace (printf "a job like %s " $server) (printf "a job like %s " $job)) }}
      {{- end }}
    {{- end }}
  {{- end }}
{{- end }}

{{- /* Sets how a monitor scrapes, its token, and the namespaces that it looks in. */ -}}
{{- define "kvscope.scrape" }}
  {{- $root := index . 0 }}
  {{- $spec := (index . 1).spec }}
  {{- $values := $root.Values }}
  {{- range $endpoint := concat (default list $spec.podMetricsEndpoints) (default list $spec.endpoints) }}
    {{- $_ := set $endpoint "interval" $values.scrapeInterval }}
    {{- $_ := set $endpoint "scrapeTimeout" $values.scrapeTimeout }}
    {{- with $values.detail }}
      {{- $_ := set $endpoint "params" (dict "detail" (list .)) }}
    {{- end }}
    {{- with $values.metricRelabelings }}
      {{- $_ := set $endpoint "metricRelabelings" . }}
    {{- end }}
  {{- end }}
  {{- with $values.sampleLimit }}
    {{- $_ := set $spec "sampleLimit" (int .) }}
  {{- end }}
  {{- $secret := $values.podMonitor.keySecret }}
  {{- if $secret.name }}
    {{- range $endpoint := $spec.podMetricsEndpoints }}
      {{- $credentials := dict "name" $secret.name "key" $secret.key }}
      {{- $_ := set $endpoint "authorization" (dict "type" "Bearer" "credentials" $credentials) }}
    {{- end }}
  {{- end }}
  {{- if has "*" $values.namespaces }}
    {{- $_ := set $spec "namespaceSelector" (dict "any" true) }}
  {{- else if $values.namespaces }}
    {{- $_ := set $spec "namespaceSelector" (dict "matchNames" (append $values.namespaces $root.Release.Namespace | uniq)) }}
  {{- end }}
{{- end }}

{{- /* The namespaces with observed pods, with commas between: those in which the monitors look. */ -}}
{{- define "kvscope.podNamespaces" }}
  {{- $places := .Values.networkPolicy.podNamespaces | default (append .Values.namespaces .Release.Namespace) | uniq }}
  {{- if has "*" $places }}
    {{- fail "networkPolicy: a policy holds for one namespace, and `namespaces` is [\"*\"]: name those of the observed pods in networkPolicy.podNamespaces" }}
  {{- end }}
  {{- join "," $places }}
{{- end }}

{{- /* Lets other namespaces than the one in the file reach sidecars, on another port. */ -}}
{{- define "kvscope.sources" }}
  {{- $policy := index . 0 }}
  {{- $rule := index (index . 1).spec.ingress 0 }}
  {{- $sources := list }}
  {{- range $namespace := $policy.namespaces }}
    {{- $labels := dict "kubernetes.io/metadata.name" $namespace }}
    {{- $sources = append $sources (dict "namespaceSelector" (dict "matchLabels" $labels)) }}
  {{- end }}
  {{- $_ := set $rule "from" (concat $sources (rest $rule.from)) }}
  {{- $_ := set (index $rule.ports 0) "port" (int $policy.port) }}
{{- end }}

{{- /* Opens all ports but the sidecars'. */ -}}
{{- define "kvscope.otherPorts" }}
  {{- $port := int (index . 0).port }}
  {{- $rule := index (index . 1).spec.ingress 0 }}
  {{- $ports := list }}
  {{- if gt $port 1 }}
    {{- $ports = append $ports (dict "protocol" "TCP" "port" 1 "endPort" (sub $port 1)) }}
  {{- end }}
  {{- if lt $port 65535 }}
    {{- $ports = append $ports (dict "protocol" "TCP" "port" (add $port 1) "endPort" 65535) }}
  {{- end }}
  {{- $_ := set $rule "ports" (append $ports (last $rule.ports)) }}
{{- end }}

{{- /* Leaves out alerts, changes severities and waits, says where runbooks are and what pages. */ -}}
{{- define "kvscope.edits" }}
  {{- $edits := index . 0 }}
  {{- $object := index . 1 }}
  {{- $known := dict }}
  {{- range $group := $object.spec.groups }}
    {{- range $rule := $group.rules }}
      {{- if $rule.alert }}
        {{- $_ := set $known $rule.alert true }}
      {{- end }}
    {{- end }}
  {{- end }}
  {{- range $name := concat $edits.disabledAlerts (keys $edits.severities) (keys $edits.waits) | uniq }}
    {{- if not (hasKey $known $name) }}
      {{- fail (printf "rules: there is no alert %s; docs/operate/alerts.md lists them" $name) }}
    {{- end }}
  {{- end }}
  {{- $groups := list }}
  {{- range $group := $object.spec.groups }}
    {{- $rules := list }}
    {{- range $rule := $group.rules }}
      {{- if $rule.alert }}
        {{- $_ := set $rule "expr" (regexReplaceAll "(server:kvscope_replicas:count >=) [0-9]+" $rule.expr (printf "${1} %d" (int $edits.pageBelowReplicas))) }}
        {{- if hasKey $edits.severities $rule.alert }}
          {{- $_ := set $rule.labels "severity" (get $edits.severities $rule.alert) }}
        {{- end }}
        {{- if hasKey $edits.waits $rule.alert }}
          {{- $_ := set $rule "for" (get $edits.waits $rule.alert) }}
        {{- end }}
        {{- if $edits.runbooksUrl }}
          {{- $_ := set $rule.annotations "runbook_url" (printf "%s/%s.md" $edits.runbooksUrl $rule.alert) }}
        {{- end }}
      {{- end }}
      {{- if not (has $rule.alert $edits.disabledAlerts) }}
        {{- $rules = append $rules $rule }}
      {{- end }}
    {{- end }}
    {{- if $rules }}
      {{- $groups = append $groups (set $group "rules" $rules) }}
    {{- end }}
  {{- end }}
  {{- $_ := set $object.spec "groups" $groups }}
{{- end }}
