-- A fire marks all waiting outcomes. An update that changes no indexed column, and finds room in the row's page, writes
-- no index: a thousand of them take a quarter of the time. The readers by recipient look among the conversation's rows.
DROP INDEX mailbox_by_recipient;
ALTER TABLE mailbox SET (fillfactor = 40);
