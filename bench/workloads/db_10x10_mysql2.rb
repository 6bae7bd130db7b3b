# frozen_string_literal: true

like "db-10x10"
title "Ten queries of 10 ms a request, through ActiveRecord, on MariaDB with mysql2"
database "mariadbd", driver: "mysql2"
