"""The rules, one module each, named after the rule. They are loaded through `amplint.rule.all_rules` and never by name."""
